"""v7's claims: products from shared memory alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v7_wgmma"
KEYS = {32: 128, 64: 128, 128: 128, 256: 64}  # per tile
WARPGROUPS = {32: 3, 64: 3, 128: 2, 256: 2}


@pytest.mark.parametrize("d", KEYS)
def test_products(run_stage: RunStage, d: int) -> None:
    """Of each warpgroup and tile d / 16 for S, with Q in shared memory, and keys / 16 for O."""
    heads, warpgroups, keys, tiles = 2, WARPGROUPS[d], KEYS[d], 2
    result = run_stage(NAME, Problem(1, heads, 64 * warpgroups, tiles * keys - 7, d))
    [launch] = result.execution.launches
    assert (launch.grid, launch.block) == ((heads, 1, 1), (128 * warpgroups, 1, 1))
    row, warpgroup_tiles = result.row, heads * warpgroups * tiles
    assert row["wgmma_instructions"] == warpgroup_tiles * 4 * (d // 16 + keys // 16)
    assert row["wavefronts_gmma"] == warpgroup_tiles * (d // 16 * (16 + keys // 4) + keys // 16 * (d // 4))
    assert row["conflicts"] == row["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", KEYS)
def test_a_warpgroup_skips_what_none_of_its_rows_sees(run_stage: RunStage, d: int) -> None:
    """Causal, and the second block has rows for one of its warpgroups only."""
    rows, keys = 64 * (WARPGROUPS[d] + 1), KEYS[d]
    row = run_stage(NAME, Problem(1, 1, rows, rows, d, is_causal=True)).row
    tiles = sum(-(-(first + 64) // keys) for first in range(0, rows, 64))
    assert row["wgmma_instructions"] == tiles * 4 * (d // 16 + keys // 16)


@pytest.mark.parametrize("d", KEYS)
def test_nothing_else_goes_through_shared_memory(run_stage: RunStage, d: int) -> None:
    row = run_stage(NAME, Problem(1, 2, 200, 300, d)).row
    for column in (
        "ldmatrix_instructions",
        "mma_instructions",
        "shared_load_instructions",
        "shared_store_instructions",
    ):
        assert row[column] == 0
