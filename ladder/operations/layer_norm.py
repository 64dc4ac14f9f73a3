"""Layer normalisation of the rows of a matrix (Ba et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.operations.base import Output, Reference, largest
from ladder.operations.sized import SizedOperation, SizedProblem, U

#: Added to the variance; torch's default.
EPSILON = 1e-5


@dataclass(frozen=True)
class LayerNormProblem(SizedProblem):
    """x (R, C), weight (C) and bias (C) -> y (R, C)."""

    operation: ClassVar[str] = "layer_norm"
    letters = {"rows": "R", "cols": "C"}
    kinds = {"normal": 1.0, "large": 100.0, "small": 0.01}

    rows: int
    cols: int

    @property
    def flops(self) -> float:
        """8 R C: per element, two sums, difference, square, two products, bias, and a share of the root."""
        return 8.0 * self.rows * self.cols


class LayerNorm(SizedOperation):
    """y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, mean and variance of each row."""

    title = "layer norm"
    problem = LayerNormProblem
    output_names = ("y",)
    axes = {"rows": (17, 1, 130), "cols": (64, 128, 256)}
    edges = {"rows": (15, 16, 31, 33, 63, 65, 127, 128, 129)}
    default_problem = LayerNormProblem(1024, 128)
    default_gpu_problem = LayerNormProblem(65536, 256)
    check_problems = (default_problem, LayerNormProblem(100, 64))
    calibration_problems = (LayerNormProblem(1024, 128), LayerNormProblem(100, 256))
    bench_problems = tuple(LayerNormProblem(65536, cols, dtype="bf16") for cols in (128, 256))

    def input_shapes(self, problem: LayerNormProblem) -> dict[str, tuple[int, ...]]:
        return {"x": (problem.rows, problem.cols), "weight": (problem.cols,), "bias": (problem.cols,)}

    def outputs(self, problem: LayerNormProblem) -> Sequence[Output]:
        return (Output("y", (problem.rows, problem.cols), problem.dtype or "f32"),)

    def reference(self, problem: LayerNormProblem, inputs: Mapping[str, Any]) -> Reference:
        """Computes y in float64. The mean of C values errs by C u mean |x|, and a difference from it by one
        rounding more. The variance's relative error is twice a difference's plus C u; the root halves it. The
        root, three products and the addition of the bias round once each (rsqrt: 2 u).
        """
        x, weight, bias = (inputs[name].double() for name in ("x", "weight", "bias"))
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
        y = centred * scale * weight + bias
        mean_error = U * (problem.cols * x.abs().mean(-1, keepdim=True) + x.abs())
        relative = U * (problem.cols + 8) + (mean_error * scale).amax(-1, keepdim=True)
        error = mean_error * scale * weight.abs() + relative * (centred * scale * weight).abs()
        total = error + (problem.rounding + U) * y.abs() + U * (y - bias).abs()
        return Reference({"y": y}, {"y": largest(total) + problem.underflow})

    def baselines(
        self, problem: LayerNormProblem, inputs: Mapping[str, Any]
    ) -> dict[str, Callable[[Any], Any]]:
        import torch.nn.functional as F

        def run(inputs: Any) -> Any:
            return F.layer_norm(inputs["x"], (problem.cols,), inputs["weight"], inputs["bias"], EPSILON)

        return {"torch": run}


OPERATION = LayerNorm()
