"""HSTU attention, and its gradients, as operations of the harness."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.errors import InvalidProblem
from ladder.operations.base import DTYPES, Huge, Operation, Output, Reference
from ladder.operations.hstu import shapes
from ladder.operations.hstu.mask import parse_window
from ladder.operations.hstu.problem import SIZE_TEXT, HstuProblem, parse_lengths


class Hstu(Operation):
    """q (total_q, H, d), k and v (total_k, H, d), jagged -> o (total_q, H, d)."""

    name = "hstu"
    title = "HSTU attention"
    #: What a rung may need or take, each with a kernel of its own.
    _features: Sequence[Mapping[str, object]] = ({}, {"bias_heads": 1}, {"page_size": 32})
    problem: type[HstuProblem] = HstuProblem
    columns = {
        "H": "Int64",
        "d": "Int64",
        **dict.fromkeys(("N", "M", "mask"), "string"),
        "bias": "Int64",
        "page": "Int64",
        "dtype": "string",
    }
    output_names: tuple[str, ...] = ("o",)
    size_text = SIZE_TEXT
    default_problem = shapes.DEFAULT_PROBLEM
    default_gpu_problem = shapes.DEFAULT_GPU_PROBLEM
    check_problems: Sequence[HstuProblem] = (
        shapes.DEFAULT_PROBLEM,
        *shapes.matrix(HstuProblem, ("f16",), (64,))[::4],
        *shapes.paged(("f16",), (64,)),
    )
    calibration_problems: Sequence[HstuProblem] = (
        *shapes.calibration_problems(HstuProblem),
        *shapes.paged(("f16",), (64,)),
        *(HstuProblem(2, d, (16, 5), (400, 300)) for d in (64, 128)),  # few queries
    )
    bench_problems: Sequence[HstuProblem] = [
        *shapes.bench_problems(HstuProblem),
        HstuProblem(16, 256, (4096,) * 4, dtype="bf16"),
        *(HstuProblem(16, d, (16,) * 32, (4096,) * 32, dtype="bf16") for d in (64, 128)),  # few queries
    ]

    def parse(self, size: str, **fields: Any) -> HstuProblem:
        words = size.split(",")
        if len(words) != 3 or not words[0].isdecimal() or not words[1].isdecimal():
            form, example = self.size_text
            raise InvalidProblem(f"--problem {size!r} is not {form}", f"For example --problem {example}")
        return self.problem(int(words[0]), int(words[1]), parse_lengths(words[2]), **fields)

    def size_of(self, problem: HstuProblem) -> str:
        return problem.size_words

    def row(self, problem: HstuProblem) -> dict[str, Any]:
        return problem.row()

    def title_of(self, row: Mapping[str, Any]) -> str:
        hidden = {"M": row["N"], "bias": 0, "page": 0}
        return super().title_of({**row, **{name: None for name, x in hidden.items() if row[name] == x}})

    def arguments(self, problem: HstuProblem, tensors: Mapping[str, Any]) -> dict[str, Any]:
        from ladder.operations.hstu.inputs import row_stride

        intervals, longest = tensors["intervals"], max(problem.all_kv_lens)
        # No window is wider than the longest sequence, so kernels can add it to a position.
        left, right = (min(side, longest) for side in problem.window)
        return {
            **{f"{name}_stride": tensors[name].stride(0) for name in "qkv"},
            "batch": problem.batch,
            "heads": problem.heads,
            "rab_heads": problem.bias_heads,
            "head_dim": problem.head_dim,
            "total_q": sum(problem.q_lens),
            "total_k": sum(problem.all_kv_lens),
            "max_q_len": max(problem.q_lens),
            "max_k_len": longest,
            "page_size": problem.page_size,
            "rab_stride": row_stride(longest),
            "target_group_size": problem.target_group_size,
            "window_left": left,
            "window_right": right,
            "interval_bounds": 0 if intervals is None else len(intervals),
            "dtype": problem.dtype,
            "alpha": problem.factor,
            "inv_length": 1.0 / problem.length,
        }

    def make_inputs(self, problem: HstuProblem, device: str = "cpu") -> dict[str, Any]:
        from ladder.operations.hstu.inputs import make_inputs

        return make_inputs(problem, device)

    def outputs(self, problem: HstuProblem) -> Sequence[Output]:
        return (Output("o", (sum(problem.q_lens), problem.heads, problem.head_dim), problem.dtype or "f16"),)

    def reference(self, problem: HstuProblem, inputs: Mapping[str, Any]) -> Reference:
        from ladder.operations.hstu.reference import reference

        return reference(problem, inputs)

    def diagnose(
        self, problem: HstuProblem, outputs: Mapping[str, Any], reference: Reference, owner: str
    ) -> list[str]:
        from ladder.operations.hstu.diagnosis import diagnose

        return diagnose(problem, self.make_inputs(problem), outputs["o"], reference)

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
        return [
            *shapes.matrix(self.problem, dtypes, head_dims),
            *shapes.paged(dtypes, head_dims),
        ]

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[HstuProblem]]:
        return {
            "lengths": shapes.boundaries(self.problem, dtypes, head_dims),
            "masks": shapes.mask_boundaries(self.problem, dtypes, head_dims),
            "pages": shapes.paged_boundaries(dtypes, head_dims),
        }

    def large(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
        return shapes.large_problems(self.problem, self._features, dtypes, head_dims)

    def beyond(self, count: int, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
        return shapes.beyond(self.problem, self._features, count, dtypes[-1], head_dims[0])

    def growing(self, dtype: str, head_dim: int) -> Iterator[list[HstuProblem]]:
        return shapes.growing(self.problem, self._features, dtype, head_dim)

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
        """One problem for each dtype and head dim not listed."""
        unknown = [(dtype, head_dims[0]) for dtype in DTYPES if dtype not in dtypes]
        unknown += [(dtypes[0], d) for d in (16, 48, 96) if d not in head_dims]
        return [self.problem(1, d, (16,), dtype=dtype) for dtype, d in unknown]

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Huge]:
        return shapes.beyond_32_bits(dtypes[-1], head_dims)

    def input_shapes(self, problem: Any) -> Mapping[str, Sequence[int]]:
        from ladder.operations.hstu.inputs import bias_shape, pages_of

        size = (problem.heads, problem.head_dim)
        queries, keys = (sum(problem.q_lens), *size), (sum(problem.all_kv_lens), *size)
        cache = (sum(pages_of(problem)), 2, problem.page_size, *size)
        keys = queries if problem.page_size else keys
        found = dict.fromkeys(("q", "d_o"), queries) | dict.fromkeys("kv", keys)
        return {**found, "rab": bias_shape(problem), "kv_cache": cache}

    def indices(self, problem: Any, last: Mapping[str, Any]) -> Mapping[str, Any]:
        from ladder.operations.hstu.inputs import indices

        return indices(problem, last["page_ids"])

    def add_options(self, group: Any) -> None:
        for option, what in (
            ("--keys", "keys of each sequence (as many as queries)"),
            ("--contexts", "contexts of each sequence"),
            ("--targets", "targets of each sequence"),
        ):
            group.add_argument(option, type=_lengths, metavar="N/N/..", help=what)
        group.add_argument("--group", type=int, metavar="N", help="targets that see each other (1)")
        group.add_argument(
            "--window", type=parse_window, metavar="L,R", help="keys before and after (-1,0: causal)"
        )
        group.add_argument("--intervals", action="store_true", default=None, help="a mask of intervals")
        group.add_argument("--bias-heads", type=int, metavar="N", help="heads of the bias (0: none)")
        group.add_argument(
            "--page-size", type=int, metavar="N", help="keys per page of the cache (0: no cache)"
        )
        group.add_argument("--alpha", type=float, help="factor of the logits (1 / sqrt(d))")
        group.add_argument("--scaling-seqlen", type=int, metavar="N", help="divisor of o")

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        given = {
            "kv_lens": options.keys,
            "contexts": options.contexts,
            "targets": options.targets,
            "target_group_size": options.group,
            "window": options.window,
            "intervals": options.intervals,
            "bias_heads": options.bias_heads,
            "page_size": options.page_size,
            "alpha": options.alpha,
            "scaling_seqlen": options.scaling_seqlen,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class HstuBackwardProblem(HstuProblem):
    """The gradients of an :class:`HstuProblem`'s o: dq, dk, dv and d_rab, the last if there is a bias and
    ``bias_gradient`` asks for it.
    """

    operation: ClassVar[str] = "hstu_backward"

    bias_gradient: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.page_size:
            raise InvalidProblem("keys in pages have no gradient")

    @property
    def differentiates_bias(self) -> bool:
        """Whether d_rab is an output."""
        return bool(self.bias_heads) and self.bias_gradient

    @property
    def command_options(self) -> str:
        return super().command_options + ("" if self.bias_gradient else " --no-bias-gradient")

    def __str__(self) -> str:
        return super().__str__() + ("" if self.bias_gradient else " without d_rab")

    @property
    def flops(self) -> float:
        """2.5 times the forward pass's: five matrix products instead of two."""
        return 2.5 * super().flops


class HstuBackward(Hstu):
    """The gradients of :class:`Hstu`'s o for a d_o (total_q, H, d)."""

    name = "hstu_backward"
    title = "HSTU attention's gradients"
    _features = ({}, {"bias_heads": 1})
    problem = HstuBackwardProblem
    output_names = ("dq", "dk", "dv", "d_rab")
    default_problem = HstuBackwardProblem(2, 64, (200, 17, 128))
    default_gpu_problem = HstuBackwardProblem(16, 64, (2048,) * 4)
    check_problems = (default_problem, *shapes.matrix(HstuBackwardProblem, ("f16",), (64,))[::4])
    calibration_problems = shapes.calibration_problems(HstuBackwardProblem)
    bench_problems = shapes.bench_problems(HstuBackwardProblem)

    def make_inputs(self, problem: Any, device: str = "cpu") -> dict[str, Any]:
        import torch

        inputs = super().make_inputs(problem, device)
        generator = torch.Generator().manual_seed(1)
        shape = (sum(problem.q_lens), problem.heads, problem.head_dim)
        inputs["d_o"] = torch.randn(*shape, generator=generator).to(device, inputs["q"].dtype)
        return inputs if problem.differentiates_bias else {**inputs, "d_rab": None}

    def outputs(self, problem: Any) -> Sequence[Output]:
        from ladder.operations.hstu.inputs import bias_shape

        dtype, size = problem.dtype or "f16", (problem.heads, problem.head_dim)
        total_q, total_k = sum(problem.q_lens), sum(problem.all_kv_lens)
        found = [Output("dq", (total_q, *size), dtype), Output("dk", (total_k, *size), dtype)]
        found.append(Output("dv", (total_k, *size), dtype))
        return [*found, Output("d_rab", bias_shape(problem), "f32")] if problem.differentiates_bias else found

    def reference(self, problem: Any, inputs: Mapping[str, Any]) -> Reference:
        from ladder.operations.hstu.reference import gradients

        return gradients(problem, inputs, bias=problem.differentiates_bias)

    def diagnose(
        self, problem: Any, outputs: Mapping[str, Any], reference: Reference, owner: str
    ) -> list[str]:
        from ladder.operations.hstu.gradients_diagnosis import diagnose_gradients

        return diagnose_gradients(problem, self.make_inputs(problem), outputs, reference)

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
        constant_bias = [
            HstuBackwardProblem(2, d, (130, 70), bias_heads=heads, bias_gradient=False, dtype=dtypes[0])
            for d in head_dims
            for heads in (1, 2)
        ]
        return [*shapes.matrix(self.problem, dtypes, head_dims), *constant_bias]

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[HstuProblem]]:
        return {
            "lengths": shapes.boundaries(self.problem, dtypes, head_dims),
            "masks": shapes.mask_boundaries(self.problem, dtypes, head_dims),
        }

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Huge]:
        return shapes.gradients_beyond_32_bits(HstuBackwardProblem, dtypes[-1], head_dims)

    def add_options(self, group: Any) -> None:
        super().add_options(group)
        group.add_argument(
            "--no-bias-gradient",
            action="store_true",
            default=None,
            help="leave out d_rab, the bias's gradient",
        )

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        return {**super().fields_of(options), "bias_gradient": not options.no_bias_gradient}


def _lengths(text: str) -> tuple[int, ...]:
    return parse_lengths(text)


FORWARD = Hstu()
BACKWARD = HstuBackward()
