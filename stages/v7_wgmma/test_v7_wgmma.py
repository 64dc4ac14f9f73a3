"""v7's claims: products from shared memory alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v7_wgmma"
HEAD_DIMS = (32, 64, 128)
KEYS = {32: 64, 64: 48, 128: 32}  # of a tile
WARPGROUPS = 4


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_products(run_stage: RunStage, d: int) -> None:
    """Of each warpgroup and tile d / 16 for S, with Q in shared memory, and keys / 16 for O."""
    heads, rows, keys, tiles = 2, 64 * WARPGROUPS, KEYS[d], 2
    row = run_stage(NAME, Problem(1, heads, rows, tiles * keys - 7, d)).row
    warpgroup_tiles = heads * WARPGROUPS * tiles
    assert row["wgmma_instructions"] == warpgroup_tiles * 4 * (d // 16 + keys // 16)
    assert row["wavefronts_gmma"] == warpgroup_tiles * (d // 16 * (16 + keys // 4) + keys // 16 * (d // 4))


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_a_warpgroup_skips_what_none_of_its_rows_sees(run_stage: RunStage, d: int) -> None:
    """Causal, and the second block has rows for one of its warpgroups only."""
    rows, keys = 64 * (WARPGROUPS + 1), KEYS[d]
    row = run_stage(NAME, Problem(1, 1, rows, rows, d, is_causal=True)).row
    tiles = sum(-(-(first + 64) // keys) for first in range(0, rows, 64))
    assert row["wgmma_instructions"] == tiles * 4 * (d // 16 + keys // 16)


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_nothing_else_goes_through_shared_memory(run_stage: RunStage, d: int) -> None:
    row = run_stage(NAME, Problem(1, 2, 200, 300, d)).row
    for column in (
        "ldmatrix_instructions",
        "mma_instructions",
        "shared_load_instructions",
        "shared_store_instructions",
    ):
        assert row[column] == 0
