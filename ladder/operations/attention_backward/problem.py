"""The problem of attention's backward pass: the forward problem, and which outputs have gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ladder.operations.attention.problem import Problem


@dataclass(frozen=True)
class BackwardProblem(Problem):
    """Gradients of o (B, H, N, d) -> dq (B, H, N, d), dk and dv (B, Hkv, M, d).

    The forward pass is that of :class:`Problem`; gradients have the shapes of q, k and v, also those of
    sequences of different lengths. With ``lse_gradient``, lse (B, H, N) has a gradient, too.
    """

    operation: ClassVar[str] = "attention_backward"

    lse_gradient: bool = False

    @property
    def flops(self) -> float:
        """2.5 times the forward pass's: five matrix products instead of two."""
        if self.q_lens is not None:
            return sum(one.flops for one in self.sequences)
        return 2.5 * super().flops

    @property
    def command_options(self) -> str:
        return super().command_options + (" --lse-gradient" if self.lse_gradient else "")

    def __str__(self) -> str:
        return super().__str__() + (" with a gradient of lse" if self.lse_gradient else "")
