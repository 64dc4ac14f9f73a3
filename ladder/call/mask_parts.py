"""A mask of a model as parts that :func:`ladder.attention` computes: padding, a cache, packed sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
