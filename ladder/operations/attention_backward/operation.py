"""Attention's backward pass as an operation of the harness."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ladder.operations.attention import shapes
from ladder.operations.attention.operation import Attention
from ladder.operations.attention.problem import Problem
from ladder.operations.attention_backward.problem import BackwardProblem
from ladder.operations.base import Huge, Operation, Output, Reference


def _of(problem: Problem, lse_gradient: bool = False) -> BackwardProblem:
    """The backward problem of a forward problem."""
    return BackwardProblem(**{"lse_gradient": lse_gradient, **asdict(problem)})


#: Gradients so much smaller than their terms that errors of delta, or of weights with large logits, decide.
_CANCELLING = (
    BackwardProblem(1, 2, 31, 32, 128, kv_heads=2, dtype="bf16", is_causal=True, scale=1.0, inputs="equal"),
    BackwardProblem(2, 1, 3, 3, 32, dtype="f16", is_causal=True, scale=0.784, inputs="equal"),
    BackwardProblem(1, 4, 1, 1, 128, kv_heads=2, dtype="f32", scale=1.0, inputs="dominant"),
    BackwardProblem(1, 2, 4, 1, 64, kv_heads=1, dtype="f32", is_causal=True, scale=4.0, inputs="dominant"),
)
#: As many as the last query heads' rows need in row_statistics, which has the fewest a block: 32.
_LAST_BLOCKS = 12


class AttentionBackward(Attention):
    """q, k, v, o, lse, d_o and an optional d_lse -> dq (B, H, N, d), dk and dv (B, Hkv, M, d)."""

    name = "attention_backward"
    title = "attention's gradients"
    problem = BackwardProblem
    output_names = ("dq", "dk", "dv", "d_sinks")
    strided = ("q", "k", "v", "d_o")
    default_problem = _of(shapes.DEFAULT_PROBLEM)
    default_gpu_problem = _of(shapes.DEFAULT_GPU_PROBLEM)
    #: No rung has gradients of values whose head dim is not the keys'.
    check_problems = (
        *(_of(one) for one in shapes.CHECK_PROBLEMS if one.value_dim == one.head_dim),
        BackwardProblem(1, 1, 130, 150, 128),  # some rungs take d = 128 alone
    )
    calibration_problems = tuple(map(_of, shapes.CALIBRATION_PROBLEMS))
    bench_problems = tuple(
        BackwardProblem(batch, 16, n, n, d, dtype="bf16", is_causal=is_causal)
        for batch, n in ((4, 4096), (16, 1024), (1, 16384))
        for d in (64, 128)
        for is_causal in (False, True)
    )

    def parse(self, size: str, **fields: Any) -> BackwardProblem:
        problem = BackwardProblem.parse(size, **fields)
        assert isinstance(problem, BackwardProblem)
        return problem

    def make_inputs(self, problem: Problem, device: str = "cpu") -> dict[str, Any]:
        """Makes the inputs: o and lse are the exact ones, rounded; d_o and d_lse are standard normal."""
        import torch

        from ladder.operations.attention.inputs import wide
        from ladder.operations.attention.jagged import attention_of_sequences
        from ladder.operations.attention.reference import attention_float64
        from ladder.operations.base import torch_dtypes

        assert isinstance(problem, BackwardProblem)
        assert problem.dtype is not None
        inputs = super().make_inputs(problem, device)
        if problem.q_lens is not None:
            o, lse = attention_of_sequences(problem, inputs)
        else:
            qkv = (inputs[name] for name in "qkv")
            o, lse = attention_float64(*qkv, sinks=inputs["sinks"], **problem.rules)
        generator = torch.Generator().manual_seed(1)
        dtype = torch_dtypes()[problem.dtype]
        d_o = torch.randn(o.shape, generator=generator).to(device, dtype)
        d_o = wide(d_o, more=4) if problem.strided else d_o
        d_lse = torch.randn(lse.shape, generator=generator).to(device) if problem.lse_gradient else None
        found = {**inputs, "o": o.to(dtype), "lse": lse.float(), "d_o": d_o, "d_lse": d_lse}
        return found if problem.sinks else {**found, "d_sinks": None}

    def outputs(self, problem: Problem) -> Sequence[Output]:
        dtype = problem.dtype or "f32"
        of_queries: tuple[int, ...] = (problem.batch, problem.heads, problem.q_len, problem.head_dim)
        of_keys: tuple[int, ...] = (problem.batch, problem.num_kv_heads, problem.kv_len, problem.head_dim)
        if problem.q_lens is not None and problem.kv_lens is not None:
            of_queries = (sum(problem.q_lens), problem.heads, problem.head_dim)
            of_keys = (sum(problem.kv_lens), problem.num_kv_heads, problem.head_dim)
        found = (Output("dq", of_queries, dtype), Output("dk", of_keys, dtype), Output("dv", of_keys, dtype))
        return (*found, Output("d_sinks", (problem.heads,), "f32")) if problem.sinks else found

    def reference(self, problem: Problem, inputs: Mapping[str, Any]) -> Reference:
        from ladder.operations.attention_backward.jagged import reference_of_sequences
        from ladder.operations.attention_backward.reference import reference

        if problem.q_lens is not None:
            return reference_of_sequences(problem, inputs)
        return reference(inputs, **problem.rules)

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        """The forward pass's problems, every other one with a gradient of lse; and some with logits so
        negative that a key past the end, of a tile after the first, would have an infinite weight.
        """
        problems = super().matrix(dtypes, head_dims)
        found = [_of(problem, number % 2 == 1) for number, problem in enumerate(problems)]
        past_end = [
            BackwardProblem(1, 1, 70, 300, d, dtype=dtype, inputs="negative")
            for d in head_dims
            for dtype in dtypes
        ]
        return [*found, *_CANCELLING, *past_end]

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[Problem]]:
        found = super().boundaries(dtypes, head_dims)
        return {name: [_of(problem) for problem in problems] for name, problems in found.items()}

    def large(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return [_of(one) for one in super().large(dtypes, head_dims)]

    def beyond(self, count: int, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return [_of(one) for one in super().beyond(count, dtypes, head_dims)]

    def growing(self, dtype: str, head_dim: int) -> Iterator[list[Problem]]:
        return ([_of(problem) for problem in series] for series in super().growing(dtype, head_dim))

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Huge]:
        """Of as many heads as a grid has blocks for; of the last ones, each rung computes the last group."""
        batch, kv_heads, group, q_len, kv_len, d = 60, 4369, 3, 90, 260, 64
        if d not in head_dims:
            return []
        problem = BackwardProblem(
            batch, group * kv_heads, q_len, kv_len, d, kv_heads=kv_heads, dtype=dtypes[0], lse_gradient=True
        )
        small = replace(problem, batch=2, heads=8 * group, kv_heads=8)
        return [Huge(problem, small, replace(problem, batch=1, heads=group, kv_heads=1), _LAST_BLOCKS)]

    def input_shapes(self, problem: Problem) -> dict[str, Sequence[int]]:
        shapes = super().input_shapes(problem)
        rows = shapes["q"][:3]
        return {**shapes, "o": shapes["q"], "d_o": shapes["q"], "lse": rows, "d_lse": rows}

    def full_matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return [_of(problem) for problem in super().full_matrix(dtypes, head_dims)]

    def random(
        self, seed: int, dtypes: Sequence[str], head_dims: Sequence[int], largest: int
    ) -> Iterator[Problem]:
        problems = super().random(seed, dtypes, head_dims, largest)
        return (_of(problem, number % 2 == 1) for number, problem in enumerate(problems))

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
        return [_of(problem) for problem in super().refused(dtypes, head_dims)]

    def needed_bytes(self, problem: Problem) -> int:
        """The forward pass's memory, plus the outputs' and inputs' gradients and the sums of dk and dv."""
        return 3 * super().needed_bytes(problem)

    def add_options(self, group: Any) -> None:
        super().add_options(group)
        group.add_argument(
            "--lse-gradient", action="store_true", default=None, help="lse has a gradient, too"
        )

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        return {**super().fields_of(options), "lse_gradient": bool(options.lse_gradient)}

    def diagnose(
        self, problem: Problem, outputs: Mapping[str, Any], reference: Reference, owner: str
    ) -> list[str]:
        from ladder.operations.attention_backward.diagnosis import diagnose

        assert isinstance(problem, BackwardProblem)
        if problem.sinks or problem.softcap is not None or problem.q_lens is not None:
            return Operation.diagnose(self, problem, outputs, reference, owner)
        return diagnose(problem, self.make_inputs(problem), outputs, reference)

    def baselines(self, problem: Problem, inputs: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
        if problem.features - {"strides"}:
            return {}  # torch's take none of the others
        from ladder.operations.attention_backward.baselines import torch_runs

        return torch_runs(problem, inputs)


OPERATION = AttentionBackward()
