"""Rotary position embedding (Su et al. 2021), which pairs elements of the two halves of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ladder.operations.base import Output, Reference, largest
from ladder.operations.sized import SizedOperation, SizedProblem, U

_BASE = 10000.0


@dataclass(frozen=True)
class RotaryProblem(SizedProblem):
    """x (H, N, d), cos and sin (N, d / 2) in fp32 -> y (H, N, d)."""

    operation: ClassVar[str] = "rotary"
    letters = {"heads": "H", "length": "N", "head_dim": "d"}

    heads: int
    length: int
    head_dim: int

    @property
    def flops(self) -> float:
        """3 H N d: two products and a sum per element."""
        return 3.0 * self.heads * self.length * self.head_dim


class Rotary(SizedOperation):
    """Rotates the d / 2 pairs (x[n, i], x[n, i + d/2]) in row n of each head by n / 10000^(2 i / d)."""

    title = "rotary embedding"
    problem = RotaryProblem
    output_names = ("y",)
    axes = {"heads": (3, 1), "length": (17, 1, 130), "head_dim": (64, 128)}
    edges = {"length": (15, 16, 31, 33, 63, 65, 127, 128, 129)}
    default_problem = RotaryProblem(8, 256, 64)
    default_gpu_problem = RotaryProblem(64, 4096, 128)
    check_problems = (default_problem, RotaryProblem(2, 100, 128))
    calibration_problems = (RotaryProblem(4, 256, 64), RotaryProblem(2, 100, 128))
    bench_problems = (RotaryProblem(64, 4096, 128, dtype="bf16"),)

    def input_shapes(self, problem: RotaryProblem) -> dict[str, tuple[int, ...]]:
        return {"x": (problem.heads, problem.length, problem.head_dim)}

    def make_inputs(self, problem: Any, device: str = "cpu") -> dict[str, Any]:
        import torch

        frequencies = _BASE ** -torch.arange(0, 1, 2 / problem.head_dim, dtype=torch.float64)
        angles = torch.arange(problem.length, dtype=torch.float64)[:, None] * frequencies
        tables = {"cos": angles.cos().float().to(device), "sin": angles.sin().float().to(device)}
        return {**super().make_inputs(problem, device), **tables}

    def outputs(self, problem: RotaryProblem) -> Sequence[Output]:
        shape = (problem.heads, problem.length, problem.head_dim)
        return (Output("y", shape, problem.dtype or "f32"),)

    def reference(self, problem: RotaryProblem, inputs: Mapping[str, Any]) -> Reference:
        """Computes y in float64. Two products and their sum round once each: 2 u of the products' magnitudes,
        which are at most those of the pair.
        """
        import torch

        cos, sin = inputs["cos"].double(), inputs["sin"].double()
        first, second = inputs["x"].double().chunk(2, -1)
        y = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        bound = 2 * U * largest(first.abs() + second.abs()) + problem.rounding * largest(y)
        return Reference({"y": y}, {"y": bound + problem.underflow})


OPERATION = Rotary()
