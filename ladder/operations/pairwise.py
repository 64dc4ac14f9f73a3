"""Combinations of the values of several axes: all of them, or every pair."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any


def product(axes: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """Every combination of the axes' values."""
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def pairwise(axes: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Rows in which any two values of any two axes occur together, far fewer than all combinations.

    Greedy and deterministic: each row starts from an uncovered pair and takes, axis by axis, the value that
    covers the most uncovered pairs; ties go to the least used value.
    """
    names = list(axes)
    pairs: Iterable[tuple[int, int]] = itertools.combinations(range(len(names)), 2)
    left = {
        (i, vi, j, vj): None
        for i, j in pairs
        for vi in range(len(axes[names[i]]))
        for vj in range(len(axes[names[j]]))
    }
    used: Counter[tuple[int, int]] = Counter()
    rows = []
    while left:
        i, vi, j, vj = next(iter(left))
        row = {i: vi, j: vj}
        for axis in range(len(names)):
            if axis not in row:
                ranks = [
                    (sum(pair in left for pair in _pairs_with(row, axis, value)), -used[axis, value])
                    for value in range(len(axes[names[axis]]))
                ]
                row[axis] = ranks.index(max(ranks))
        used.update(row.items())
        for axis, value in row.items():
            for pair in _pairs_with(row, axis, value):
                left.pop(pair, None)
        rows.append({name: axes[name][row[axis]] for axis, name in enumerate(names)})
    return rows


def _pairs_with(row: dict[int, int], axis: int, value: int) -> Iterator[tuple[int, int, int, int]]:
    for other, other_value in row.items():
        if other < axis:
            yield other, other_value, axis, value
        elif other > axis:
            yield axis, value, other, other_value
