"""Attention with the worst rounding that a kernel may have, to test the bounds of ladder.reference.

Tensor cores truncate, in steps of 8 or 16; running maxima are updated tile by tile, or only if they have
grown by more than a slack; exp2 has an error of 2^-22; sums are in fp32, one term after another.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453


@dataclass(frozen=True)
class Kernel:
    """A kernel's arithmetic. ``depth`` is the depth of the tensor cores' steps, 0 for fused multiply-adds."""

    depth: int
    tile: int
    slack: float
    #: exp2's relative error in units of 2^-22, always with the same sign.
    exp2_error: float


def attend(
    kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """o (N, d) in the dtype of q and lse (N) in fp32, of one head: q (N, d), k and v (M, d)."""
    factor = torch.tensor(scale).float() * torch.tensor(LOG2E).float()
    s = _product(q.float(), k.float().T, torch.zeros(len(q), len(k)), kernel.depth) * factor
    if is_causal:
        s.masked_fill_(torch.arange(len(k)) > torch.arange(len(q))[:, None], -torch.inf)
    m = torch.full((len(q), 1), -torch.inf)
    weight_sum, o = torch.zeros(len(q), 1), torch.zeros(q.shape)
    for key in range(0, len(k), kernel.tile):
        part = s[:, key : key + kernel.tile]
        highest = part.amax(-1, keepdim=True)
        m_new = torch.where(highest > m + kernel.slack, highest, m)
        rescale = _exp2(m - m_new, kernel)
        weight_sum, o, m = weight_sum * rescale, o * rescale, m_new
        p = _exp2(part - m, kernel)
        for column in p.unbind(-1):
            weight_sum = weight_sum + column[:, None]
        o = _product(p.to(q.dtype).float(), v[key : key + kernel.tile].float(), o, kernel.depth)
    log2 = torch.log2(weight_sum) * (1 + kernel.exp2_error * 2.0**-22)
    lse = (m + log2) * torch.tensor(LN2)
    return (o * (1 / weight_sum)).to(q.dtype), lse[:, 0]


def _exp2(x: Tensor, kernel: Kernel) -> Tensor:
    off = torch.where(x == 0, 0.0, kernel.exp2_error * 2.0**-22)  # 2^0 is exact
    return (torch.exp2(x.double()) * (1 + off.double())).float()


def _product(a: Tensor, b: Tensor, total: Tensor, depth: int) -> Tensor:
    """total + a @ b in fp32."""
    if depth == 0:
        for x in range(a.shape[1]):
            total = (total.double() + a[:, x, None].double() * b[x].double()).float()
        return total
    for x in range(0, a.shape[1], depth):
        addends = a[:, None, x : x + depth].double() * b.T[None, :, x : x + depth].double()
        addends = torch.cat([total[:, :, None].double(), addends], -1)
        total = _truncate_together(addends).sum(-1)
        total = _truncate_together(total[..., None])[..., 0].float()
    return total


def _truncate_together(addends: Tensor) -> Tensor:
    """Truncates to 24 bits, counted from the highest bit of the largest along the last axis."""
    exponent = torch.frexp(addends.abs().amax(-1, keepdim=True))[1]
    return torch.ldexp(torch.ldexp(addends, 24 - exponent).trunc(), exponent - 24)
