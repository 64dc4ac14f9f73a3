"""A mask as parts that :func:`ladder.attention` computes: padding, a cache, packed sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem

#: Parts of one batch; a mask with more has another structure, and as many launches would take long.
_MOST = 64


@dataclass(frozen=True)
class Part:
    """Queries of some batches that see a range of keys: all of it or, if it is causal, with the last query at
    the position of the last key.
    """

    batches: slice
    queries: slice
    keys: slice
    is_causal: bool


def parts_of(mask: Tensor, window: int | None) -> list[Part] | None:
    """The parts of a mask (B, 1, N, M), bool, true where a query sees a key; with a ``window``, causal parts
    see as many keys. Queries that see no key are in no part. None if there are no such parts: if the keys
    of a query do not follow each other, or the mask has more than one head. Waits for the mask's GPU.
    """
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1:
        return None
    seen = mask[:, 0]
    begin = seen.int().argmax(2)
    end = begin + seen.sum(2)
    keys = torch.arange(mask.shape[3], device=mask.device)
    if not torch.equal(seen, (keys >= begin[..., None]) & (keys < end[..., None])):
        return None
    starts = _starts(begin, end, window)
    places = starts.nonzero().tolist()
    if len(places) > _MOST * len(mask):
        return None
    follows = ((begin[1:] == begin[:-1]) & (end[1:] == end[:-1])).all(1).tolist()
    return _parts(places, [False, *follows], begin.tolist(), end.tolist())


def kept_parts_of(mask: Tensor, window: int | None) -> list[Part] | None:
    """:func:`parts_of` a mask, kept with it until it changes: all layers of a model have the same mask."""
    version = None if mask.is_inference() else mask._version
    kept, found = getattr(mask, "_ladder_parts", (None, None))
    if kept != (window, version):
        found = parts_of(mask, window)
        mask._ladder_parts = (window, version), found  # type: ignore[attr-defined]
    return found


def attend_parts(
    attend: Callable[..., tuple[Tensor, Tensor]],
    parts: list[Part],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int | None,
    sinks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """o (B, H, N, e) and lse (B, H, N), by one call of ``attend`` per part: of query, key, value,
    ``is_causal``, ``window_size`` and ``sinks``. A query in no part has o = 0 and lse = -inf, or its head's
    sink.
    """
    batch, heads, rows, _ = query.shape
    o = query.new_zeros(batch, heads, rows, value.shape[3])
    lse = query.new_full((batch, heads, rows), -torch.inf, dtype=torch.float32)
    if sinks is not None:
        lse = sinks.float()[:, None].expand_as(lse).clone()
    for part in parts:
        q = query[part.batches, :, part.queries]
        k, v = (x[part.batches, :, part.keys] for x in (key, value))
        cuts = part.is_causal and window is not None and window < k.shape[2]
        is_aligned = q.shape[2] == k.shape[2]  # then both corners are one, and every rung takes the mask
        left = window - 1 if cuts and window else -1
        found = attend(
            *(q, k, v),
            is_causal=part.is_causal and is_aligned and not cuts,
            window_size=(left, 0) if cuts or (part.is_causal and not is_aligned) else (-1, -1),
            sinks=sinks,
        )
        if len(parts) == 1 and found[0].shape == o.shape:
            return found
        o[part.batches, :, part.queries], lse[part.batches, :, part.queries] = found
    return o, lse


def parts_of_attn_mask(mask: Any, query: Tensor, key: Tensor) -> tuple[list[Part], int | None]:
    """The parts of torch's ``attn_mask``, with the window of causal ones. The mask is bool, true where a
    query sees a key, or of floats that are 0 there and -inf elsewhere. It is broadcast to (B, H, N, M).

    Raises :class:`InvalidProblem` for a mask that torch does not take either, and
    :class:`UnsupportedProblem` for one that no rung computes.
    """
    seen = _seen(mask, query, key)
    found = [(parts_of(seen, window), window) for window in (None, int(seen.sum(3).max()))]
    known = [(parts, window) for parts, window in found if parts is not None]
    if not known:
        raise UnsupportedProblem(
            "attn_mask hides keys between those that a query sees, which no rung computes",
            "The keys of a query must be one range: padding, a causal mask, a window, packed sequences.",
        )
    return min(known, key=lambda one: len(one[0]))


def _seen(mask: Any, query: Tensor, key: Tensor) -> Tensor:
    """Which keys a query sees, (B, 1, N, M)."""
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InvalidProblem(f"attn_mask is {kind}; it must be a bool or float tensor")
    if mask.device != query.device:
        raise InvalidProblem(f"attn_mask is on {mask.device} and query on {query.device}")
    shape = (*query.shape[:3], key.shape[2])
    try:
        seen = (mask if mask.dtype == torch.bool else mask == 0).expand(shape)
    except RuntimeError:
        raise InvalidProblem(
            f"attn_mask is {tuple(mask.shape)}; it must be broadcastable to (B, H, N, M), here {shape}"
        ) from None
    if mask.requires_grad or (mask.dtype != torch.bool and not ((mask == 0) | (mask == -torch.inf)).all()):
        raise UnsupportedProblem(
            "attn_mask adds a bias to the logits, which no rung computes",
            "A bool mask hides keys; a float mask may have 0 and -inf.",
        )
    if seen.stride(1) and not torch.equal(seen, seen[:, :1].expand(shape)):
        raise UnsupportedProblem(
            "attn_mask differs between heads, which no rung computes", "Call it for the heads of each mask."
        )
    return seen[:, :1]


def _starts(begin: Tensor, end: Tensor, window: int | None) -> Tensor:
    """Where a query (B, N) does not continue the part of the one before it: with the same keys, or with one
    more.
    """
    first, before, last = begin[:, 1:], begin[:, :-1], end[:, 1:]
    moved = before if window is None else torch.maximum(before, last - window)
    one_more = (last == end[:, :-1] + 1) & (first == moved)
    same = (last == end[:, :-1]) & (first == before)
    starts = torch.ones_like(begin, dtype=torch.bool)
    starts[:, 1:] = ~(one_more | same)
    starts[:, 2:] |= (one_more[:, 1:] & same[:, :-1]) | (same[:, 1:] & one_more[:, :-1])
    return starts


def _parts(
    places: list[list[int]], follows: list[bool], begin: list[list[int]], end: list[list[int]]
) -> list[Part]:
    """The parts that start at these (batch, query). A batch that ``follows`` has those of the one before."""
    found = []
    for (batch, first), after in zip(places, [*places[1:], [len(begin), 0]], strict=True):
        last = (after[1] if after[0] == batch else len(begin[batch])) - 1
        if follows[batch] or end[batch][last] == begin[batch][last]:
            continue
        until = batch + 1
        while until < len(begin) and follows[until]:
            until += 1
        found.append(
            Part(
                slice(batch, until),
                slice(first, last + 1),
                slice(begin[batch][first], end[batch][last]),
                is_causal=end[batch][last] > end[batch][first],
            )
        )
    return found
