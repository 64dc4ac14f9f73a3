"""Measures the online softmax of one query row, step by step, in a rung."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ladder.show.plots import SOFTMAX_TILE, Progress

if TYPE_CHECKING:
    from torch import Tensor


def measure_softmax(q: Tensor, k: Tensor, v: Tensor, stage: str = "v1") -> Progress:
    """Measures the state of ``stage`` after each tile of keys by running it on all keys up to that tile.

    q is (1, 1, 1, d); k and v are (1, 1, M, d). The kernel gives lse = m + log(l) and the logits give m, from
    which l follows.
    """
    from ladder.call import attention

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
    """A row of 512 keys whose maximum grows several times: its logits have a standard deviation of 3."""
    import torch

    generator = torch.Generator().manual_seed(4)
    q = 3 * torch.randn(1, 1, 1, 64, generator=generator)
    k, v = (torch.randn(1, 1, 512, 64, generator=generator) for _ in range(2))
    return q, k, v
