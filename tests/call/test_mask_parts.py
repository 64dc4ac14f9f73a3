"""Masks taken apart, and put together again."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from ladder.call.mask_parts import Part, parts_of

N, M = 12, 20


def mask_of(parts: list[Part], window: int | None, batch: int) -> Tensor:
    """The mask that calls of these parts compute."""
    mask = torch.zeros(batch, 1, N, M, dtype=torch.bool)
    for part in parts:
        rows, keys = range(N)[part.queries], range(M)[part.keys]
        for i in rows:
            last = keys.stop - (rows.stop - 1 - i) if part.is_causal else keys.stop
            first = max(keys.start, last - window) if window and part.is_causal else keys.start
            mask[part.batches, 0, i, first:last] = True
    return mask


def causal(offset: int, first: int = 0, window: int = M) -> Tensor:
    """A mask (N, M): query i is at the position of key i + offset; keys before ``first`` are padding."""
    position, key = torch.arange(N)[:, None] + offset, torch.arange(M)
    return (key <= position) & (key >= first) & (key > position - window)


def packed(*lengths: int) -> Tensor:
    places = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    keys = torch.cat([places, torch.full((M - N,), -1)])
    return causal(0) & (places[:, None] == keys)


RIGHT_PADDED = causal(0) & (torch.arange(M) < 9)
BOTH_SIDES = (torch.arange(M) < 7).expand(N, M)


@pytest.mark.parametrize(
    ("rows", "window", "calls"),
    [
        ([causal(0)], None, 1),
        ([causal(5), causal(5)], None, 1),  # a chunk after a cache: one call for both batches
        ([causal(8, 3), causal(8)], None, 2),
        ([RIGHT_PADDED, causal(0)], None, 3),
        ([packed(5, 4, 3)], None, 3),
        ([BOTH_SIDES, BOTH_SIDES], None, 1),
        ([causal(4, 4, 3), causal(4, 0, 3)], 3, 2),
        ([causal(0, 15)], None, 0),
        ([causal(0, 5)], None, 1),  # of the queries from 5 on
    ],
)
def test_structures(rows: list[Tensor], window: int | None, calls: int) -> None:
    mask = torch.stack(rows)[:, None]
    parts = parts_of(mask, window)
    assert parts is not None and len(parts) == calls
    assert torch.equal(mask_of(parts, window, len(mask)), mask)


@pytest.mark.parametrize("seed", range(40))
def test_any_mask_of_ranges_is_exact(seed: int) -> None:
    chance = random.Random(seed)
    mask = torch.zeros(2, 1, N, M, dtype=torch.bool)
    for batch in range(2):
        first = last = 0
        for i in range(N):
            first, last = chance.choice(
                ((first, last + 1), (first, last), (first + 1, last + 1), (chance.randint(0, M),) * 2, (0, 5))
            )
            mask[batch, 0, i, first:last] = True
    for window in (None, 1, 3):
        parts = parts_of(mask, window)
        assert parts is not None and torch.equal(mask_of(parts, window, 2), mask)


def test_other_masks_have_no_parts() -> None:
    gap = causal(0)
    gap[-1, 3] = False
    assert parts_of(gap[None, None], None) is None
    assert parts_of(causal(0).expand(1, 2, N, M), None) is None
    assert parts_of(causal(0).float()[None, None], None) is None
    stripes = (torch.arange(200)[:, None] % 2 == torch.arange(200)) & (torch.arange(200) < 2)
    assert parts_of(stripes[None, None], None) is None, "as many launches as queries"
