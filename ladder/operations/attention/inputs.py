"""Inputs of a problem: ordinary ones, and ones that break a faulty online softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ladder.errors import InvalidProblem
from ladder.operations.attention.problem import Problem
from ladder.operations.base import DTYPES, torch_dtypes

TORCH_DTYPES = {name: torch_dtypes()[name] for name in DTYPES}


def _normal(q: Tensor, k: Tensor) -> None:
    """Leaves the inputs standard normal."""


def _large(q: Tensor, k: Tensor) -> None:
    """Makes logits in the hundreds: exp overflows unless the row maximum is subtracted."""
    q *= 10.0
    k *= 10.0


def _negative(q: Tensor, k: Tensor) -> None:
    """Makes all logits strongly negative: a running maximum that starts at 0, not -inf, loses every row."""
    q.abs_().add_(1.0)
    k.abs_().add_(1.0).mul_(-4.0)


def _equal(q: Tensor, k: Tensor) -> None:
    """Makes all logits of a row equal: the probabilities are 1 / (number of visible keys)."""
    k.copy_(k[:, :, :1].clone().expand_as(k))


def _dominant(q: Tensor, k: Tensor) -> None:
    """Gives the middle key nearly all the weight: the maximum changes in the middle of the row."""
    q[..., 0] = 16.0
    k[..., 0] = 0.0
    k[:, :, k.shape[2] // 2, 0] = 16.0


def _rising(q: Tensor, k: Tensor) -> None:
    """Makes the last keys' logits 16.5 bits larger than the others', with the default scale: relative to the
    maximum of the keys before, their weights are beyond f16.
    """
    last = max(1, k.shape[2] // 64)
    q *= 0.03
    q[..., 0] = 8.0
    k[..., 0] = 0.0
    k[:, :, -last:, 0] = 16.5 * math.log(2) * math.sqrt(q.shape[3]) / 8.0


#: The functions that modify normal q and k, by the names in INPUTS.
KINDS: dict[str, Callable[[Tensor, Tensor], None]] = {
    "normal": _normal,
    "large": _large,
    "negative": _negative,
    "equal": _equal,
    "dominant": _dominant,
    "rising": _rising,
}


def wide(x: Tensor, more: int) -> Tensor:
    """The same (B, H, N, d) in rows of all heads and ``more`` others, of NaNs. Each tensor of a problem has
    another number of them, so that a kernel that uses the strides of the wrong one shows.
    """
    beside = torch.full_like(x[:, :1], torch.nan).expand(-1, more, -1, -1)
    return torch.cat([x, beside], 1).transpose(1, 2).contiguous().transpose(1, 2)[:, : x.shape[1]]


def make_inputs(problem: Problem, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Draws q, k and v in fp32 on the CPU, then rounds them, so that they are the same on every machine."""
    if problem.dtype is None:
        raise InvalidProblem(f"{problem} has no dtype")
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(problem.batch, problem.heads, problem.q_len, problem.head_dim, generator=generator)
    kv_shape = (problem.batch, problem.num_kv_heads, problem.kv_len, problem.head_dim)
    k = torch.randn(kv_shape, generator=generator)
    v = torch.randn((*kv_shape[:3], problem.value_dim), generator=generator)
    KINDS[problem.inputs](q, k)
    dtype = TORCH_DTYPES[problem.dtype]
    return q.to(device, dtype), k.to(device, dtype), v.to(device, dtype)


def make_sinks(problem: Problem, device: str = "cpu") -> Tensor | None:
    """Draws the sinks (H), if the problem has any: standard normal, the second head's above all logits."""
    if not problem.sinks:
        return None
    sinks = torch.randn(problem.heads, generator=torch.Generator().manual_seed(2))
    sinks[1:2] = 40.0
    return sinks.to(device)
