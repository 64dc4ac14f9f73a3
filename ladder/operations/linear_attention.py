"""Causal linear attention (Katharopoulos et al. 2020), without feature map or normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ladder.operations.base import Output, Reference
from ladder.operations.sized import DEVIATIONS, SizedOperation, SizedProblem, U

if TYPE_CHECKING:
    from torch import Tensor

#: The number of values of a head's states that the reference holds at once.
_STATES_AT_ONCE = 2**22


@dataclass(frozen=True)
class LinearAttentionProblem(SizedProblem):
    """q, k and v (H, N, d) -> o (H, N, d)."""

    operation: ClassVar[str] = "linear_attention"
    letters = {"heads": "H", "length": "N", "head_dim": "d"}

    heads: int
    length: int
    head_dim: int

    @property
    def flops(self) -> float:
        """4 H N d^2: each row adds k^T v to the state and reads q S from it."""
        return 4.0 * self.heads * self.length * self.head_dim**2


class LinearAttention(SizedOperation):
    """o[i] = sum over j <= i of (q[i] . k[j]) v[j]."""

    title = "causal linear attention"
    problem = LinearAttentionProblem
    output_names = ("o",)
    axes = {"heads": (3, 1), "length": (100, 1, 17, 200), "head_dim": (64, 32, 128)}
    edges = {"length": (15, 16, 63, 64, 65, 127, 128, 129, 193)}
    default_problem = LinearAttentionProblem(2, 512, 64)
    default_gpu_problem = LinearAttentionProblem(256, 4096, 64)
    check_problems = (LinearAttentionProblem(2, 256, 64), LinearAttentionProblem(1, 100, 32))
    calibration_problems = (LinearAttentionProblem(4, 256, 64), LinearAttentionProblem(3, 100, 32))
    bench_problems = (LinearAttentionProblem(256, 4096, 64, dtype="bf16"),)

    def input_shapes(self, problem: LinearAttentionProblem) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys("qkv", (problem.heads, problem.length, problem.head_dim))

    def outputs(self, problem: LinearAttentionProblem) -> Sequence[Output]:
        shape = (problem.heads, problem.length, problem.head_dim)
        return (Output("o", shape, problem.dtype or "f32"),)

    def reference(self, problem: LinearAttentionProblem, inputs: Mapping[str, Any]) -> Reference:
        """Computes o in float64. A kernel sums weights q k^T over some keys, and uses the state S, the sum of
        k^T v, for the keys before them; it may round both to 16 bits. As q, k and v are independent, errors f
        of the weights of query i change o by at most 7 |f|, and so do errors of a column of S. These are w =
        u_T + 5/2 (n + d) u of each value, n = i + 1, or for the state, of the largest that it had so far. A
        weight is a sum of d products and, in addition, errs by 5/2 d u of their magnitudes.
        """
        import torch

        o = torch.empty(inputs["q"].shape, dtype=torch.float64, device=inputs["q"].device)
        bound = 0.0
        for head in range(problem.heads):
            q, k, v = (inputs[name][head].double() for name in "qkv")
            weights = (q @ k.T).tril()
            o[head] = weights @ v
            n = torch.arange(1, problem.length + 1, device=q.device)[:, None]
            w = problem.rounding + 2.5 * (n + problem.head_dim) * U
            products = (q.abs() @ k.abs().T).tril().norm(dim=1, keepdim=True)
            values = weights.norm(dim=1, keepdim=True) + torch.cat([*_largest_states(k, v)], 1)
            off = DEVIATIONS * (w * values + 2.5 * problem.head_dim * U * products)
            underflow = problem.underflow * (1 + DEVIATIONS * (n + problem.head_dim).sqrt())
            bound = max(bound, float((off + problem.rounding * o[head].abs() + underflow).max()))
        return Reference({"o": o}, {"o": bound})

    def needed_bytes(self, problem: Any) -> int:
        """The bytes of inputs and outputs, of the weights of a head, and of its states."""
        states = max(_STATES_AT_ONCE, problem.length * problem.head_dim)
        return super().needed_bytes(problem) + 8 * (4 * problem.length**2 + 3 * states)


def _largest_states(k: Tensor, v: Tensor) -> Iterator[Tensor]:
    """Yields the norms of the state's largest values so far (N, columns), a few columns at a time."""
    for columns in v.split(max(1, _STATES_AT_ONCE // k.numel()), 1):
        states = (k[:, :, None] * columns[:, None, :]).cumsum(0)
        yield states.abs().cummax(0).values.norm(dim=1)


OPERATION = LinearAttention()
