"""A product of two 16-bit matrices, with sums in fp32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.operations.base import Output, Reference, largest
from ladder.operations.sized import DEVIATIONS, SizedOperation, SizedProblem, U


@dataclass(frozen=True)
class GemmProblem(SizedProblem):
    """a (M, K) and b (K, N) -> c (M, N)."""

    operation: ClassVar[str] = "gemm"
    letters = {"rows": "M", "cols": "N", "depth": "K"}

    rows: int
    cols: int
    depth: int

    @property
    def flops(self) -> float:
        """2 M N K."""
        return 2.0 * self.rows * self.cols * self.depth


class Gemm(SizedOperation):
    """c = a b."""

    title = "matrix product"
    problem = GemmProblem
    output_names = ("c",)
    axes = {"rows": (100, 1, 128, 200), "cols": (40, 8, 136), "depth": (200, 8, 32)}
    edges = {
        "rows": (15, 16, 63, 64, 65, 127, 129, 255, 257),
        "cols": (16, 56, 64, 72, 120, 128, 248, 264),
        "depth": (16, 24, 40, 88, 96, 104, 120, 128, 136),
    }
    default_problem = GemmProblem(256, 256, 512)
    default_gpu_problem = GemmProblem(4096, 4096, 4096)
    check_problems = (GemmProblem(256, 128, 128), GemmProblem(100, 40, 72))
    calibration_problems = (GemmProblem(256, 256, 512), GemmProblem(200, 136, 72))
    bench_problems = tuple(GemmProblem(n, n, n, dtype=t) for n in (2048, 4096, 8192) for t in ("f16", "bf16"))

    def input_shapes(self, problem: GemmProblem) -> dict[str, tuple[int, ...]]:
        return {"a": (problem.rows, problem.depth), "b": (problem.depth, problem.cols)}

    def outputs(self, problem: GemmProblem) -> Sequence[Output]:
        return (Output("c", (problem.rows, problem.cols), problem.dtype or "f32"),)

    def reference(self, problem: GemmProblem, inputs: Mapping[str, Any]) -> Reference:
        """Computes c in float64. Each of the K additions errs by at most 5/2 u of the largest number in it
        (attention/reference.py), a partial sum. As b is normal and independent of a, no partial sum exceeds 7
        times the norm of a's row.
        """
        a, b = inputs["a"].double(), inputs["b"].double()
        c = a @ b
        sums = 2.5 * problem.depth * U * DEVIATIONS * a.norm(dim=1, keepdim=True)
        return Reference({"c": c}, {"c": largest(sums + problem.rounding * c.abs()) + problem.underflow})

    def baselines(self, problem: GemmProblem, inputs: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
        return {"torch cuBLAS": lambda inputs: inputs["a"] @ inputs["b"]}


OPERATION = Gemm()
