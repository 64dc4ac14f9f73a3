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
from ladder.operations.hstu.mask import parse_window
from ladder.operations.hstu.problem import parse_lengths

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
        "window": "string",
        "softcap": "Float64",
        "sinks": "boolean",
        "lengths": "string",
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
            "window": None if problem.window is None else "{},{}".format(*problem.window),
            "softcap": problem.softcap,
            "sinks": problem.sinks,
            "lengths": problem.lengths,
        }

    def title_of(self, row: Mapping[str, Any]) -> str:
        shown = {**row, "Hkv": None if row["Hkv"] == row["H"] else row["Hkv"]}
        return super().title_of(shown)

    def arguments(self, problem: Problem, tensors: Tensors) -> dict[str, Any]:
        begin, end = problem.band
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
            "begin": begin,
            "end": end,
            "softcap": float(problem.softcap or 0),
            "total_q": sum(problem.q_lens or ()),
            "total_k": sum(problem.kv_lens or ()),
            **{f"{name}_strides": strides(tensors[name]) for name in self.strided},
        }

    def make_inputs(self, problem: Problem, device: str = "cpu") -> dict[str, Any]:
        from ladder.operations.attention.inputs import make_inputs, make_sinks, wide
        from ladder.operations.attention.jagged import offsets, packed

        inputs: dict[str, Any] = dict(zip("qkv", make_inputs(problem, device), strict=True))
        if problem.strided:
            inputs = {name: wide(x, more) for more, (name, x) in enumerate(inputs.items(), start=1)}
        marks = dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"))
        if problem.q_lens is not None and problem.kv_lens is not None:
            lengths = {"q": problem.q_lens, "k": problem.kv_lens, "v": problem.kv_lens}
            inputs = {name: packed(x, lengths[name]) for name, x in inputs.items()}
            marks = {f"cu_seqlens_{name}": offsets(lengths[name], device) for name in "qk"}
        return {**inputs, "sinks": make_sinks(problem, device), **marks}

    def outputs(self, problem: Problem) -> Sequence[Output]:
        rows: tuple[int, ...] = (problem.batch, problem.heads, problem.q_len)
        of_o: tuple[int, ...] = (*rows, problem.value_dim)
        if problem.q_lens is not None:
            rows, of_o = (
                (problem.heads, sum(problem.q_lens)),
                (sum(problem.q_lens), problem.heads, problem.value_dim),
            )
        return (Output("o", of_o, problem.dtype or "f32"), Output("lse", rows, "f32"))

    def reference(self, problem: Problem, inputs: Mapping[str, Any]) -> Reference:
        from ladder.operations.attention.jagged import reference_of_sequences
        from ladder.operations.attention.reference import reference

        if problem.q_lens is not None:
            return reference_of_sequences(problem, inputs)
        return reference(*(inputs[name] for name in "qkv"), sinks=inputs["sinks"], **problem.rules)

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        head_dims = shapes.few(head_dims)
        return [
            *shapes.pairwise_problems(dtypes, head_dims),
            *shapes.strided_problems(dtypes, head_dims),
            *shapes.variants(dtypes, head_dims),
        ]

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[Problem]]:
        return {
            **{f"d={d}": shapes.boundary_problems(d, dtypes) for d in shapes.few(head_dims)},
            "windows": shapes.window_boundaries(dtypes, head_dims),
        }

    def large(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return shapes.large_problems(dtypes, shapes.few(head_dims))

    def beyond(self, count: int, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return shapes.beyond(count, dtypes[-1], shapes.few(head_dims)[0])

    def growing(self, dtype: str, head_dim: int) -> Iterator[list[Problem]]:
        return shapes.growing(dtype, head_dim)

    def full_matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return shapes.full_problems(dtypes, shapes.few(head_dims))

    def random(
        self, seed: int, dtypes: Sequence[str], head_dims: Sequence[int], largest: int
    ) -> Iterator[Problem]:
        return shapes.random_problems(seed, dtypes, head_dims, largest)

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        """One problem for each dtype and head dim not listed; of a rung for any multiple of 8, for others."""
        unknown = [(dtype, head_dims[0]) for dtype in DTYPES if dtype not in dtypes]
        others = (20, 264) if 8 in head_dims else (16, 32, 48, 64, 96, 128, 256)
        unknown += [(dtypes[0], d) for d in others if d not in head_dims]
        return [Problem(1, 1, 16, 16, d, dtype=dtype) for dtype, d in unknown]

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Huge]:
        return [huge for d in shapes.few(head_dims) for huge in shapes.beyond_32_bits(dtypes[-1], d)]

    def input_shapes(self, problem: Problem) -> dict[str, Sequence[int]]:
        q = (problem.batch, problem.heads, problem.q_len, problem.head_dim)
        k = (problem.batch, problem.num_kv_heads, problem.kv_len, problem.head_dim)
        return {"q": q, "k": k, "v": (*k[:3], problem.value_dim)}

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
        group.add_argument("--scale", type=parse_number, help="factor of the logits (1 / sqrt(d))")
        group.add_argument(
            "--window", type=parse_window, metavar="L,R", help="keys before and after (-1,0: causal)"
        )
        group.add_argument("--softcap", type=parse_number, help="the logits' largest size (no limit)")
        for option, what in (("--queries", "queries"), ("--keys", "keys")):
            group.add_argument(option, type=parse_lengths, metavar="N/N/..", help=f"{what} of each sequence")
        group.add_argument("--sinks", action="store_true", default=None, help="a logit of its own per head")

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        return {
            "kv_heads": options.kv_heads,
            "is_causal": bool(options.causal),
            "scale": options.scale,
            "strided": bool(options.strided),
            "window": options.window,
            "softcap": options.softcap,
            "sinks": bool(options.sinks),
            "q_lens": options.queries,
            "kv_lens": options.keys,
        }

    def diagnose(
        self, problem: Problem, outputs: Mapping[str, Any], reference: Reference, owner: str
    ) -> list[str]:
        from ladder.operations.attention.diagnosis import diagnose
        from ladder.operations.attention.reference import AttentionReference

        assert isinstance(reference, AttentionReference)
        if problem.q_lens is not None:
            return super().diagnose(problem, outputs, reference, owner)
        return diagnose(problem, outputs["o"], outputs["lse"], reference, owner)

    def part(self, problem: Problem, tensors: Mapping[str, Any]) -> tuple[Problem, Mapping[str, Any]]:
        """Selects two heads of the first batch; of sequences of different lengths, all."""
        if problem.q_lens is not None:
            return problem, tensors
        heads = min(_CHECKED_HEADS, problem.heads)
        kv_heads = math.ceil(heads * problem.num_kv_heads / problem.heads)
        taken = {"k": kv_heads, "v": kv_heads}
        parts = {
            name: tensor[:heads] if name in ("sinks", "d_sinks") else tensor[:1, : taken.get(name, heads)]
            for name, tensor in tensors.items()
            if tensor is not None
        }
        parts = {name: parts.get(name) for name in tensors}
        return replace(problem, batch=1, heads=heads, kv_heads=kv_heads), parts

    def baselines(self, problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
        if problem.features - {"strides"}:
            return {}  # torch's take none of the others
        from ladder.operations.attention.baselines import torch_runs

        return torch_runs(problem, inputs)


def strides(tensor: Any) -> tuple[int, int, int]:
    """The elements from one batch, head and row of a tensor (B, H, N, d) to the next. Those of a dimension of
    size 1 say nothing, and need not be multiples of 16 bytes; they are a contiguous tensor's.
    """
    if tensor.dim() == 3:  # tokens of all sequences
        return 0, tensor.stride(1), tensor.stride(0)
    _, heads, rows, d = tensor.shape
    found = zip(tensor.shape, tensor.stride(), (heads * rows * d, rows * d, d), strict=False)
    batch, head, row = (usual if size == 1 else stride for size, stride, usual in found)
    return batch, head, row


def parse_number(text: str) -> float:
    """A number of the command line."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


OPERATION = Attention()
