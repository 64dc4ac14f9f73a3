"""Softmax of the rows of a matrix: the shortest operation, and the one to begin a new one from."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.errors import InvalidProblem
from ladder.operations.base import (
    DTYPE_BYTES,
    AnyProblem,
    Operation,
    Output,
    Reference,
    check_dtype,
    check_size,
    largest,
    parse_sizes,
    torch_dtypes,
)

INPUTS = ("normal", "large")
SIZE_TEXT = ("R,C", "256,64")
_U = 2.0**-24
#: Rounding error of the output, and of f16 the absolute one below 2^-14.
_ROUNDING = {"f32": _U, "f16": 2.0**-11, "bf16": 2.0**-8}
_F16_SUBNORMAL = 2.0**-25


@dataclass(frozen=True)
class RowSoftmaxProblem(AnyProblem):
    """x (R, C) -> y (R, C). With the inputs ``large`` exp overflows unless the row's maximum is taken off.

    Raises :class:`InvalidProblem`.
    """

    operation: ClassVar[str] = "row_softmax"

    rows: int
    cols: int
    dtype: str | None = None
    inputs: str = "normal"

    def __post_init__(self) -> None:
        check_size("R", "rows", self.rows)
        check_size("C", "cols", self.cols)
        check_dtype(self.dtype)
        if self.inputs not in INPUTS:
            raise InvalidProblem(f"inputs {self.inputs!r} is none of {', '.join(INPUTS)}")

    @property
    def flops(self) -> float:
        """5 R C: maximum, difference, exp, sum and quotient."""
        return 5.0 * self.rows * self.cols

    @property
    def command_options(self) -> str:
        words = ["--problem", f"{self.rows},{self.cols}"]
        words += ["--dtype", self.dtype] if self.dtype else []
        words += ["--inputs", self.inputs] if self.inputs != "normal" else []
        return shlex.join(words)

    def __str__(self) -> str:
        dtype = f" {self.dtype}" if self.dtype else ""
        return f"R={self.rows} C={self.cols}{dtype}" + (
            f" {self.inputs} inputs" if self.inputs != "normal" else ""
        )


class RowSoftmax(Operation):
    """y[i, j] = exp(x[i, j]) / sum over j of exp(x[i, j])."""

    name = "row_softmax"
    title = "row softmax"
    problem = RowSoftmaxProblem
    columns = {"R": "Int64", "C": "Int64", "dtype": "string"}  # noqa: RUF012
    output_names = ("y",)
    size_text = SIZE_TEXT
    default_problem = RowSoftmaxProblem(1024, 64)
    default_gpu_problem = RowSoftmaxProblem(65536, 128)
    check_problems = (default_problem, RowSoftmaxProblem(100, 32))
    calibration_problems = (RowSoftmaxProblem(1024, 64), RowSoftmaxProblem(100, 128))
    bench_problems = (RowSoftmaxProblem(65536, 128, dtype="bf16"),)

    def parse(self, size: str, **fields: Any) -> RowSoftmaxProblem:
        rows, cols = parse_sizes(size, self.size_text)
        return RowSoftmaxProblem(rows, cols, **fields)

    def size_of(self, problem: RowSoftmaxProblem) -> str:
        return f"{problem.rows},{problem.cols}"

    def row(self, problem: RowSoftmaxProblem) -> dict[str, Any]:
        return {"R": problem.rows, "C": problem.cols, "dtype": problem.dtype}

    def arguments(self, problem: RowSoftmaxProblem) -> dict[str, Any]:
        return {"rows": problem.rows, "cols": problem.cols, "dtype": problem.dtype}

    def make_inputs(self, problem: RowSoftmaxProblem, device: str = "cpu") -> dict[str, Any]:
        import torch

        generator = torch.Generator().manual_seed(0)
        x = torch.randn(problem.rows, problem.cols, generator=generator)
        x = x * 100 if problem.inputs == "large" else x
        return {"x": x.to(device, torch_dtypes()[problem.dtype or "f32"])}

    def outputs(self, problem: RowSoftmaxProblem) -> Sequence[Output]:
        return (Output("y", (problem.rows, problem.cols), problem.dtype or "f32"),)

    def reference(self, problem: RowSoftmaxProblem, inputs: Mapping[str, Any]) -> Reference:
        """Of x - m, m the maximum, the rounding and that of its product with log2(e) make 3 u |x - m| of a
        weight's relative error, exp 4 u (PTX: ex2.approx); the sum of n weights adds n u, the quotient u."""
        import torch

        x = inputs["x"].double()
        y = torch.softmax(x, -1)
        e = _U * (3 * (x - x.amax(-1, keepdim=True)).abs() + 4)
        relative = e + (y * e).sum(-1, keepdim=True) + (problem.cols + 2) * _U
        bound = largest(y * (relative + _ROUNDING[problem.dtype or "f32"]))
        return Reference({"y": y}, {"y": bound + (_F16_SUBNORMAL if problem.dtype == "f16" else 0.0)})

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[RowSoftmaxProblem]:
        return [
            RowSoftmaxProblem(rows, cols, dtype, kind)
            for rows in (1, 17, 64, 130)
            for cols in (32, 64, 128)
            for dtype in dtypes
            for kind in INPUTS
        ]

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[RowSoftmaxProblem]:
        return [RowSoftmaxProblem(16, 64, dtype) for dtype in _ROUNDING if dtype not in dtypes]

    def needed_bytes(self, problem: RowSoftmaxProblem) -> int:
        """x and y, and in float64 x, y and what the bound is made of."""
        return problem.rows * problem.cols * (4 + 2 * DTYPE_BYTES[problem.dtype or "f32"] + 5 * 8)


OPERATION = RowSoftmax()
