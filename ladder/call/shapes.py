"""Other shapes that torch's attention takes: any number of dimensions, broadcast ones, empty tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ladder.errors import InvalidProblem
from ladder.operations import check_tensors

#: o and lse of query, key and value, with grouped heads or without.
Attend = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]


def is_usual(query: Any, key: Any, value: Any, enable_gqa: bool) -> bool:
    """Whether no other shape is meant than (B, H, N, d), (B, Hkv, M, d) and (B, Hkv, M, e), none empty. What
    is no tensor of strides is left to the checks of the problem.
    """
    given = (query, key, value)
    if not all(isinstance(x, Tensor) and x.layout == torch.strided and not x.is_nested for x in given):
        return True
    if any(x.dim() != 4 or x.numel() == 0 for x in given):
        return False
    h, h_k, h_v = (x.shape[1] for x in given)
    to_broadcast = h_k != h_v or (h != h_k and 1 in (h, h_k) and not enable_gqa)
    return len(key) == len(query) == len(value) and not to_broadcast


def of_other_shapes(
    attend: Attend, query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Tensor, Tensor]:
    """o (..., N, e) and lse (..., N), by torch's rules: dimensions before the last two are broadcast, the
    last of them is the heads, and queries without a key have o = 0.

    Raises :class:`InvalidProblem` for shapes that torch does not take either.
    """
    given = [x[(None,) * (4 - x.dim())] if x.dim() < 4 else x for x in (query, key, value)]
    h, *of_keys = (x.shape[-3] for x in given)
    try:
        batch = torch.broadcast_shapes(*(x.shape[:-3] for x in given))
        shared = _broadcast(*of_keys)
        is_grouped = enable_gqa or shared == 1
        heads = h if is_grouped else _broadcast(h, shared)
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise InvalidProblem(
            f"the dimensions of query, key and value before the last two do not go together: {shapes}",
            "They are equal, or 1 in a tensor that serves several batches.",
        ) from None
    sizes = (heads, *[shared if is_grouped else heads] * 2)
    q, k, v = (
        x.expand(*batch, size, *x.shape[-2:]).reshape(math.prod(batch), size, *x.shape[-2:])
        for x, size in zip(given, sizes, strict=True)
    )
    is_empty = q.numel() == 0 or k.numel() == 0 or v.numel() == 0
    o, lse = _without_pairs(q, k, v) if is_empty else attend(q, k, v, is_grouped)
    lead = (*batch, heads)[len(batch) + 3 - max(x.dim() for x in (query, key, value)) :]
    return o.reshape(*lead, *o.shape[2:]), lse.reshape(*lead, lse.shape[2])


def _broadcast(one: int, other: int) -> int:
    return torch.broadcast_shapes((one,), (other,))[0]


def _without_pairs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Attention without batches, heads, queries or keys, by torch's operators: they have its gradients, 0."""
    check_tensors(q, k, v, "4: (batch, heads, sequence, head_dim)", narrow_values=True)
    if 0 in (q.shape[3], v.shape[3]) or (q.shape[1] and not k.shape[1]):
        raise InvalidProblem(f"query is {tuple(q.shape)} and key {tuple(k.shape)}: d and Hkv are at least 1")
    k, v = (x[:, :1].expand(-1, q.shape[1], -1, -1) for x in (k, v))
    scores = q.float() @ k.float().mT
    return (scores @ v.float()).to(q.dtype), scores.logsumexp(3)
