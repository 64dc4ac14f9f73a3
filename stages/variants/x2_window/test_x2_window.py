"""x2's claims: each consumer multiplies the tiles that its rows see, and no others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x2_window"
KEYS, ROWS = 128, 192  # of a tile, d = 64
PROBLEMS = (
    (400, 400, (60, 0)),
    (400, 400, (0, 0)),
    (330, 700, (200, 100)),
    (400, 90, (-1, 0)),
    (200, 130, (33, -1)),
)


def tiles_of(n: int, m: int, window: tuple[int, int]) -> tuple[int, int]:
    """The tiles of keys that work items load, and those that consumers multiply: counted row by row."""
    left, right = (m + n if side < 0 else side for side in window)
    seen = [{j for j in range(m) if i + m - n - left <= j <= i + m - n + right} for i in range(n)]
    first = -(-n // 64) * 64 - -(-n // ROWS) * ROWS
    loaded = multiplied = 0
    for row in range(first, n, ROWS):
        keys = sorted(set().union(*seen[max(row, 0) : row + ROWS]))
        tiles = [{*range(key, key + KEYS)} for key in range(keys[0], keys[-1] + 1, KEYS)] if keys else []
        loaded += len(tiles)
        for of_consumer in range(max(row, 0), min(row + ROWS, n), 64):
            own = set().union(*seen[of_consumer : of_consumer + 64])
            multiplied += sum(not own.isdisjoint(tile) for tile in tiles)
    return loaded, multiplied


@pytest.mark.parametrize(("n", "m", "window"), PROBLEMS)
def test_tiles_that_no_row_sees_are_neither_loaded_nor_multiplied(
    run_stage: RunStage, n: int, m: int, window: tuple[int, int]
) -> None:
    row = run_stage(NAME, Problem(1, 1, n, m, 64, window=window)).row
    loaded, multiplied = tiles_of(n, m, window)
    of_q = 3 * -(-n // ROWS)
    assert row["tma_load_instructions"] == 2 * loaded + of_q
    assert row["wgmma_instructions"] == multiplied * 4 * (64 // 16 + KEYS // 16)
    assert row["conflicts"] == row["conflicts_gmma"] == 0


def test_without_limits_it_counts_what_v12c_counts(run_stage: RunStage) -> None:
    wide = run_stage(NAME, Problem(1, 2, 400, 300, 64, window=(1000, 1000))).row
    dense = run_stage("v12c", Problem(1, 2, 400, 300, 64, dtype="f16")).row
    for column in ("tma_load_instructions", "tma_store_instructions", "wgmma_instructions", "error"):
        assert wide[column] == dense[column], column


def test_rows_that_see_no_key(run_stage: RunStage) -> None:
    """Of 300 queries and 40 keys the first 260 are before key 0."""
    outputs = run_stage(NAME, Problem(1, 1, 300, 40, 64, window=(-1, 0))).execution.outputs
    o, lse = (torch.as_tensor(outputs[name])[0, 0] for name in ("o", "lse"))
    assert torch.equal(o[:260], torch.zeros_like(o[:260])) and (lse[:260] == -math.inf).all()
    assert (o[260:] != 0).any(-1).all() and lse[260:].isfinite().all()
