"""Online softmax of one query row, step by step as a rung computes it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ladder.plots import SOFTMAX_TILE, Progress

if TYPE_CHECKING:
    from torch import Tensor


def measure_softmax(q: Tensor, k: Tensor, v: Tensor, stage: str = "v1_minimal") -> Progress:
    """What ``stage`` has after each tile of keys: it is run on the emulator on the keys up to there.

    q (1, 1, 1, d), k and v (1, 1, M, d). lse = m + log(l) comes from the kernel and m from the logits, which
    gives l.
    """
    from ladder.functional import attention

    logits = (q[0, 0, 0].double() @ k[0, 0].double().T / math.sqrt(q.shape[3])).tolist()
    m: list[float] = []
    sums: list[float] = []
    rescale: list[float] = []
    for end in range(SOFTMAX_TILE, len(logits) + SOFTMAX_TILE, SOFTMAX_TILE):
        seen = slice(0, min(end, len(logits)))
        _, lse = attention(q, k[:, :, seen].contiguous(), v[:, :, seen].contiguous(), stage=stage)
        before = m[-1] if m else -math.inf
        m.append(max(logits[seen]))
        sums.append(math.exp(lse.item() - m[-1]))
        rescale.append(math.exp(before - m[-1]))
    return Progress(logits, m, sums, rescale)


def example() -> tuple[Tensor, Tensor, Tensor]:
    """A row whose maximum grows several times: logits with a standard deviation of 3, 512 keys."""
    import torch

    generator = torch.Generator().manual_seed(4)
    q = 3 * torch.randn(1, 1, 1, 64, generator=generator)
    k, v = (torch.randn(1, 1, 512, 64, generator=generator) for _ in range(2))
    return q, k, v
