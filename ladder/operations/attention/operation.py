"""Attention as an operation of the harness."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ladder.operations.attention import shapes
from ladder.operations.attention.problem import SIZE_TEXT, Problem
from ladder.operations.base import DTYPES, Huge, Operation, Output, Reference, Tensors

_CHECKED_HEADS = 2


class Attention(Operation):
    """q (B, H, N, d), k and v (B, Hkv, M, d) -> o (B, H, N, d) and lse (B, H, N)."""

    name = "attention"
    title = "attention"
    problem = Problem
    columns = {
        **dict.fromkeys(("B", "H", "Hkv", "N", "M", "d"), "Int64"),
        "dtype": "string",
        "causal": "boolean",
    }
    output_names: tuple[str, ...] = ("o", "lse")
    #: The inputs that a stage with the feature ``strides`` takes as they lie.
    strided: tuple[str, ...] = ("q", "k", "v")
    size_text = SIZE_TEXT
    default_problem = shapes.DEFAULT_PROBLEM
    default_gpu_problem = shapes.DEFAULT_GPU_PROBLEM
    check_problems: Sequence[Problem] = shapes.CHECK_PROBLEMS
    calibration_problems: Sequence[Problem] = shapes.CALIBRATION_PROBLEMS
    bench_problems: Sequence[Problem] = shapes.BENCH_PROBLEMS

    def parse(self, size: str, **fields: Any) -> Problem:
        return Problem.parse(size, **fields)

    def size_of(self, problem: Problem) -> str:
        sizes = (problem.batch, problem.heads, problem.q_len, problem.kv_len, problem.head_dim)
        return ",".join(map(str, sizes))

    def row(self, problem: Problem) -> dict[str, Any]:
        return {
            "B": problem.batch,
            "H": problem.heads,
            "Hkv": problem.num_kv_heads,
            "N": problem.q_len,
            "M": problem.kv_len,
            "d": problem.head_dim,
            "dtype": problem.dtype,
            "causal": problem.is_causal,
        }

    def title_of(self, row: Mapping[str, Any]) -> str:
        shown = {**row, "Hkv": None if row["Hkv"] == row["H"] else row["Hkv"]}
        return super().title_of(shown)

    def arguments(self, problem: Problem, tensors: Tensors) -> dict[str, Any]:
        return {
            "batch": problem.batch,
            "heads": problem.heads,
            "kv_heads": problem.num_kv_heads,
            "q_len": problem.q_len,
            "kv_len": problem.kv_len,
            "head_dim": problem.head_dim,
            "dtype": problem.dtype,
            "is_causal": problem.is_causal,
            "scale": problem.softmax_scale,
            **{f"{name}_strides": strides(tensors[name]) for name in self.strided},
        }

    def make_inputs(self, problem: Problem, device: str = "cpu") -> dict[str, Any]:
        from ladder.operations.attention.inputs import make_inputs, wide

        inputs = dict(zip("qkv", make_inputs(problem, device), strict=True))
        return {name: wide(x) for name, x in inputs.items()} if problem.strided else inputs

    def outputs(self, problem: Problem) -> Sequence[Output]:
        rows = (problem.batch, problem.heads, problem.q_len)
        return (Output("o", (*rows, problem.head_dim), problem.dtype or "f32"), Output("lse", rows, "f32"))

    def reference(self, problem: Problem, inputs: Mapping[str, Any]) -> Reference:
        from ladder.operations.attention.reference import reference

        return reference(**inputs, is_causal=problem.is_causal, scale=problem.softmax_scale)

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return [*shapes.pairwise_problems(dtypes, head_dims), *shapes.strided_problems(dtypes, head_dims)]

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[Problem]]:
        return {f"d={d}": shapes.boundary_problems(d, dtypes) for d in head_dims}

    def large(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return shapes.large_problems(dtypes, head_dims)

    def growing(self, dtype: str, head_dim: int) -> Iterator[list[Problem]]:
        return shapes.growing(dtype, head_dim)

    def full_matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return shapes.full_problems(dtypes, head_dims)

    def random(
        self, seed: int, dtypes: Sequence[str], head_dims: Sequence[int], largest: int
    ) -> Iterator[Problem]:
        return shapes.random_problems(seed, dtypes, head_dims, largest)

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        """One problem for each dtype and head dim not listed."""
        unknown = [(dtype, head_dims[0]) for dtype in DTYPES if dtype not in dtypes]
        unknown += [(dtypes[0], d) for d in (16, 32, 48, 64, 96, 128, 256) if d not in head_dims]
        return [Problem(1, 1, 16, 16, d, dtype=dtype) for dtype, d in unknown]

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Huge]:
        return [huge for d in head_dims for huge in shapes.beyond_32_bits(dtypes[-1], d)]

    def input_shapes(self, problem: Problem) -> dict[str, Sequence[int]]:
        keys = (problem.batch, problem.num_kv_heads, problem.kv_len, problem.head_dim)
        return {"q": (problem.batch, problem.heads, problem.q_len, problem.head_dim), "k": keys, "v": keys}

    def needed_bytes(self, problem: Problem) -> int:
        from ladder.operations.attention.memory import needed_bytes

        return needed_bytes(problem)

    def add_options(self, group: Any) -> None:
        group.add_argument("--kv-heads", type=int, metavar="N", help="heads of k and v (as many as q has)")
        group.add_argument(
            "--causal", action="store_true", default=None, help="query i sees only keys j <= i"
        )
        group.add_argument(
            "--strided", action="store_true", default=None, help="a token's heads lie side by side"
        )
        group.add_argument("--scale", type=_number, help="factor of the logits (1 / sqrt(d))")

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        return {
            "kv_heads": options.kv_heads,
            "is_causal": bool(options.causal),
            "scale": options.scale,
            "strided": bool(options.strided),
        }

    def diagnose(
        self, problem: Problem, outputs: Mapping[str, Any], reference: Reference, owner: str
    ) -> list[str]:
        from ladder.operations.attention.diagnosis import diagnose
        from ladder.operations.attention.reference import AttentionReference

        assert isinstance(reference, AttentionReference)
        return diagnose(problem, outputs["o"], outputs["lse"], reference, owner)

    def part(self, problem: Problem, tensors: Mapping[str, Any]) -> tuple[Problem, Mapping[str, Any]]:
        """Selects two heads of the first batch."""
        heads = min(_CHECKED_HEADS, problem.heads)
        kv_heads = math.ceil(heads * problem.num_kv_heads / problem.heads)
        taken = {"k": kv_heads, "v": kv_heads}
        parts = {name: tensor[:1, : taken.get(name, heads)] for name, tensor in tensors.items()}
        return replace(problem, batch=1, heads=heads, kv_heads=kv_heads), parts

    def baselines(self, problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
        from ladder.operations.attention.baselines import torch_runs

        return torch_runs(problem, inputs)


def strides(tensor: Any) -> tuple[int, int, int]:
    """The elements from one batch, head and row of a tensor (B, H, N, d) to the next. Those of a dimension of
    size 1 say nothing, and need not be multiples of 16 bytes; they are a contiguous tensor's.
    """
    _, heads, rows, d = tensor.shape
    found = zip(tensor.shape, tensor.stride(), (heads * rows * d, rows * d, d), strict=False)
    batch, head, row = (usual if size == 1 else stride for size, stride, usual in found)
    return batch, head, row


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


OPERATION = Attention()
