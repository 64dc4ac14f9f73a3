"""HSTU's mask against masks made elsewhere, and against its definition in words."""

from __future__ import annotations

import csv
import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tile_programs import compile_ptx

import ladder
from ladder.errors import InvalidProblem
from ladder.run.emulator import Module

#: The most keys of a random case, and the rows and keys of a tile of it.
KEYS, TILE = 24, 8
TILES = KEYS // TILE
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


@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    contexts: int
    targets: int
    group: int
    window: tuple[int, int]

    @property
    def mask(self) -> torch.Tensor:
        return ladder.hstu_mask(self.queries, self.keys, self.contexts, self.targets, self.group, self.window)


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """4,000 of all kinds, of at most KEYS keys; their first rows and keys are multiples of no tile."""
    chance, found = random.Random(0), []
    for _ in range(4000):
        n_k = chance.randint(1, KEYS)
        n_q, c = chance.randint(1, n_k), chance.randint(0, n_k)
        t, g = chance.randint(0, n_k - c), chance.randint(1, 5)
        window = (-1, 0)
        if chance.random() < 0.3:
            c = t = 0
            window = (chance.randint(-1, 8), chance.randint(-1, 8))
        found.append(Case(n_q, n_k, c, t, g, window))
    return found


def test_random_masks_element_by_element(cases: list[Case]) -> None:
    for one in cases:
        rule = (one.keys, one.contexts, one.targets, one.group, one.window)
        positions = range(one.keys - one.queries, one.keys)
        assert one.mask.tolist() == [[seen(r, j, *rule) for j in range(one.keys)] for r in positions], one


#: Of a row the bits of the keys that it sees; of a tile whether some row sees a key, and whether all see all.
KERNEL = """
#include "ladder/hstu_mask.h"
using namespace ladder;
extern "C" __global__ void k(const int *cases, long *rows, int *tiles) {
  const int *one = cases + blockIdx.x * 7, k_len = one[0], shift = one[1];
  HstuProblem p{};
  p.num_contexts = one + 2;
  p.num_targets = one + 3;
  p.target_group_size = one[4];
  p.window_left = one[5];
  p.window_right = one[6];
  const HstuMask<false> mask(p, 0, k_len, 0, shift);
  if (const int r = shift + threadIdx.x; r < k_len)
    rows[blockIdx.x * KEYS + threadIdx.x] = mask.row_bits(r, 0, k_len);
  if (const int first = shift + threadIdx.x / TILES * TILE; threadIdx.x < TILES * TILES && first < k_len) {
    const HstuKeys keys(mask, first, min(first + TILE, k_len) - 1);
    const int key = threadIdx.x % TILES * TILE;
    tiles[blockIdx.x * TILES * TILES + threadIdx.x] = keys.any_in(key, TILE) + 2 * keys.all_in(key, TILE);
  }
}
"""


def test_the_kernels_rule_is_the_same(cases: list[Case]) -> None:
    sizes = [f"-D{name}={size}" for name, size in (("KEYS", KEYS), ("TILE", TILE), ("TILES", TILES))]
    numbers = [
        (one.keys, one.keys - one.queries, one.contexts, one.targets, one.group, *one.window) for one in cases
    ]
    rows = torch.zeros(len(cases), KEYS, dtype=torch.long)
    tiles = torch.zeros(len(cases), TILES, TILES, dtype=torch.int32)
    module = Module(compile_ptx(KERNEL, "sm_80", *sizes), "sm_80")
    module.launch("k", len(cases), 32, (torch.tensor(numbers, dtype=torch.int32), rows, tiles))
    found = (rows[:, :, None] >> torch.arange(KEYS)) & 1
    for one, bits, visited in zip(cases, found.bool(), tiles, strict=True):
        assert torch.equal(bits[: one.queries, : one.keys], one.mask), one
        for i, j in itertools.product(range(-(-one.queries // TILE)), range(TILES)):
            keys = bits[TILE * i : min(TILE * (i + 1), one.queries), TILE * j : TILE * (j + 1)]
            any_in, all_in = bool(visited[i, j] & 1), bool(visited[i, j] & 2)
            assert any_in == bool(keys.any()), (one, i, j)
            if TILE * j < one.keys - one.targets < TILE * (j + 1):  # may be masked without need
                assert all_in <= bool(keys.all()), (one, i, j)
            else:
                assert all_in == bool(keys.all()), (one, i, j)


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
            {"queries": 4, "keys": 4, "intervals": torch.zeros(2, 4).int(), "window": (-1, 0)},
            "an odd number of bounds, 4 queries",
        ),
        (
            {"queries": 4, "keys": 4, "intervals": torch.zeros(3, 4), "targets": 1},
            "intervals replace the mask",
        ),
    ],
)
def test_masks_without_a_meaning(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        ladder.hstu_mask(**arguments)  # type: ignore[arg-type]
