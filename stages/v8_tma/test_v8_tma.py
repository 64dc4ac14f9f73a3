"""v8's claims: one request a tile, no load by threads, and the products of v7."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v8_tma"
HEAD_DIMS = (32, 64, 128, 256)
KEYS = {32: 128, 64: 128, 128: 128, 256: 64}  # of a tile
WARPGROUPS = {32: 3, 64: 3, 128: 2, 256: 2}


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_one_request_a_tile(run_stage: RunStage, d: int) -> None:
    """Of each block one for Q a warpgroup, and for K and V one a tile; threads load nothing."""
    blocks, tiles = 2 * 2, 3
    row = run_stage(NAME, Problem(1, 2, 64 * WARPGROUPS[d] + 1, (tiles - 1) * KEYS[d] + 1, d)).row
    assert row["tma_load_instructions"] == blocks * (WARPGROUPS[d] + 2 * tiles)
    assert row["global_sectors_ld"] == 0


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_the_products_are_those_of_v7(run_stage: RunStage, d: int) -> None:
    """Of each warpgroup with rows, those of the tiles that one of its rows sees."""
    heads, n, m, keys = 2, 200, 300, KEYS[d]
    problem = Problem(1, heads, n, m, d, is_causal=True)
    before, after = (run_stage(name, problem).row for name in ("v7", NAME))
    tiles = heads * sum(-(-min(m, first + 64) // keys) for first in range(0, n, 64))
    instructions = tiles * 4 * (d // 16 + keys // 16)
    wavefronts = tiles * (d // 16 * (16 + keys // 4) + keys // 16 * (d // 4))
    assert before["wgmma_instructions"] == after["wgmma_instructions"] == instructions
    assert before["wavefronts_gmma"] == after["wavefronts_gmma"] == wavefronts


def test_rows_do_not_cross_heads(run_stage: RunStage) -> None:
    """A tile's rows past the end of a head are zeros, not the next head's: 3 keys, 128 in a tile."""
    run_stage(NAME, Problem(2, 3, 5, 3, 64, inputs="equal"))
