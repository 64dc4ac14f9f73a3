"""Merges the attention of one set of keys with that of another, by lse, in fp32."""

from __future__ import annotations

import functools
import importlib.util
import math

import torch
from torch import Tensor


def merge(o: Tensor, lse: Tensor, part_o: Tensor, part_lse: Tensor) -> None:
    """Merges a part into o (B, H, n, d), of any float dtype, and lse (B, H, n), fp32, in place.

    ``part_o`` (any float dtype) and ``part_lse`` are the attention of the same queries to other keys. Of the
    weights of all keys, exp(lse') / (exp(lse) + exp(lse')) belongs to the part, the sigmoid of the
    difference:

        share = sigmoid(lse' - lse), o <- o + share (o' - o), lse <- log(exp(lse) + exp(lse'))

    It is computed in fp32, and o is rounded once, to its dtype: whoever merges several parts keeps o in fp32.
    No exp overflows. A query that saw no key has o = 0 and lse = -inf; two of them merge to the same. Source:
    FlashAttention-2 (Dao 2023), section 3.1, with the sigmoid as in Ring Attention's implementations.

    On a GPU it is one kernel, if Triton is installed, as it is with torch's wheels for CUDA: torch's own
    functions would read and write o five times.
    """
    if o.is_cuda and has_triton():
        from ladder.call.distributed.fused import merge_on_gpu

        merge_on_gpu(o, lse, part_o, part_lse)
        return
    # Without the condition, two parts without keys would give -inf - -inf.
    share = torch.sigmoid(part_lse - lse).masked_fill_(part_lse == -math.inf, 0.0)
    torch.logaddexp(lse, part_lse, out=lse)
    o.copy_(torch.lerp(o.float(), part_o.float(), share[..., None]))


@functools.cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
