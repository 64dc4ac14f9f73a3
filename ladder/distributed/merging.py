"""Merges the attention of one set of keys with that of another, by lse, in fp32."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def merge(o: Tensor, lse: Tensor, part_o: Tensor, part_lse: Tensor) -> None:
    """Merges a part into o (B, H, n, d) and lse (B, H, n), both fp32, in place.

    ``part_o`` (any float dtype) and ``part_lse`` are the attention of the same queries to other keys. Of the
    weights of all keys, exp(lse') / (exp(lse) + exp(lse')) belongs to the part, the sigmoid of the
    difference:

        share = sigmoid(lse' - lse), o <- o + share (o' - o), lse <- log(exp(lse) + exp(lse'))

    No exp overflows. A query that saw no key has o = 0 and lse = -inf; two of them merge to the same. Source:
    FlashAttention-2 (Dao 2023), section 3.1, with the sigmoid as in Ring Attention's implementations.
    """
    # Without the condition, two parts without keys would give -inf - -inf.
    share = torch.sigmoid(part_lse - lse).masked_fill_(part_lse == -math.inf, 0.0)
    torch.logaddexp(lse, part_lse, out=lse)
    o.lerp_(part_o.float(), share[..., None])
