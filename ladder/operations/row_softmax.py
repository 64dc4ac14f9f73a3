"""Softmax of the rows of a matrix: the shortest operation, and a starting point for new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.operations.base import Output, Reference, largest
from ladder.operations.sized import SizedOperation, SizedProblem, U


@dataclass(frozen=True)
class RowSoftmaxProblem(SizedProblem):
    """x (R, C) -> y (R, C). With ``large`` inputs, exp overflows unless the row maximum is subtracted."""

    operation: ClassVar[str] = "row_softmax"
    letters = {"rows": "R", "cols": "C"}
    kinds = {"normal": 1.0, "large": 100.0}

    rows: int
    cols: int

    @property
    def flops(self) -> float:
        """5 R C: maximum, difference, exp, sum and quotient per element."""
        return 5.0 * self.rows * self.cols


class RowSoftmax(SizedOperation):
    """y[i, j] = exp(x[i, j]) / sum over j of exp(x[i, j])."""

    title = "row softmax"
    problem = RowSoftmaxProblem
    output_names = ("y",)
    axes = {"rows": (17, 1, 64, 130), "cols": (32, 64, 128)}
    edges = {"rows": (15, 16, 31, 33, 63, 65, 127, 128, 129)}
    default_problem = RowSoftmaxProblem(1024, 64)
    default_gpu_problem = RowSoftmaxProblem(65536, 128)
    check_problems = (default_problem, RowSoftmaxProblem(100, 32))
    calibration_problems = (RowSoftmaxProblem(1024, 64), RowSoftmaxProblem(100, 128))
    bench_problems = (RowSoftmaxProblem(65536, 128, dtype="bf16"),)

    def input_shapes(self, problem: RowSoftmaxProblem) -> dict[str, tuple[int, ...]]:
        return {"x": (problem.rows, problem.cols)}

    def outputs(self, problem: RowSoftmaxProblem) -> Sequence[Output]:
        return (Output("y", (problem.rows, problem.cols), problem.dtype or "f32"),)

    def reference(self, problem: RowSoftmaxProblem, inputs: Mapping[str, Any]) -> Reference:
        """Computes y in float64. With m the maximum, the roundings of x - m and of its product with log2(e)
        contribute 3 u |x - m| to a weight's relative error, and exp 4 u (PTX: ex2.approx); the sum of n
        weights adds n u, the quotient u.
        """
        import torch

        x = inputs["x"].double()
        y = torch.softmax(x, -1)
        e = U * (3 * (x - x.amax(-1, keepdim=True)).abs() + 4)
        relative = e + (y * e).sum(-1, keepdim=True) + (problem.cols + 2) * U
        bound = largest(y * (relative + problem.rounding))
        return Reference({"y": y}, {"y": bound + problem.underflow})


OPERATION = RowSoftmax()
