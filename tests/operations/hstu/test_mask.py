"""HSTU's mask against masks made elsewhere, and against its definition in words."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest
import torch

import ladder
from ladder.errors import InvalidProblem

MASKS = Path(__file__).parents[2] / "data" / "hstu" / "masks.csv"


def test_masks_made_by_the_public_tests_own_function() -> None:
    rows = list(csv.DictReader(MASKS.open()))
    assert len(rows) == 400
    for row in rows:
        names = ("queries", "keys", "contexts", "targets", "target_group_size")
        numbers = {name: int(row[name]) for name in names}
        mask = ladder.hstu_mask(**numbers, window=(int(row["window_left"]), int(row["window_right"])))
        assert "/".join("".join(map(str, line)) for line in mask.int().tolist()) == row["rows"], row


def seen(r: int, j: int, n_k: int, c: int, t: int, g: int, window: tuple[int, int]) -> bool:
    """One element, by the definition in words."""
    h = n_k - t
    if window != (-1, 0):
        left, right = window
        return (left < 0 or j >= r - left) and (right < 0 or j <= r + right)
    if r < c:
        return j < h
    if r >= h and j >= h and (j - h) // g != (r - h) // g:
        return False
    return j <= r


def test_random_masks_element_by_element() -> None:
    chance = random.Random(0)
    for _ in range(300):
        n_k = chance.randint(1, 24)
        n_q, c = chance.randint(1, n_k), chance.randint(0, n_k)
        t, g = chance.randint(0, n_k - c), chance.randint(1, 5)
        window = (-1, 0)
        if chance.random() < 0.3:
            c = t = 0
            window = (chance.randint(-1, 8), chance.randint(-1, 8))
        mask = ladder.hstu_mask(n_q, n_k, c, t, g, window)
        expected = [[seen(i + n_k - n_q, j, n_k, c, t, g, window) for j in range(n_k)] for i in range(n_q)]
        assert mask.tolist() == expected, (n_q, n_k, c, t, g, window)


def test_intervals() -> None:
    bounds = torch.tensor([[0, 1, 2], [2, 3, 4], [4, 3, 6]])
    assert ladder.hstu_mask(3, 6, intervals=bounds).int().tolist() == [
        [0, 0, 1, 1, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 1],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queries": 5, "keys": 4}, "5 queries and 4 keys"),
        ({"queries": 4, "keys": 4, "contexts": 3, "targets": 2}, "3 contexts and 2 targets do not fit"),
        ({"queries": 4, "keys": 4, "target_group_size": 0}, "target_group_size is 0"),
        (
            {"queries": 4, "keys": 4, "targets": 1, "window": (2, 0)},
            r"window \(2, 0\) with contexts or targets",
        ),
        (
            {"queries": 4, "keys": 4, "intervals": torch.zeros(2, 4), "window": (-1, 0)},
            "an odd number of bounds, 4 queries",
        ),
        ({"queries": 4, "keys": 4, "intervals": torch.zeros(3, 4), "targets": 1}, "a mask by themselves"),
    ],
)
def test_masks_without_a_meaning(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        ladder.hstu_mask(**arguments)  # type: ignore[arg-type]
