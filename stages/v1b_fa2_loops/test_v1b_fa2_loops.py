"""v1b's claims: a block for every tile of queries, and O, l and m never in global memory between tiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v1b_fa2_loops"


@pytest.mark.parametrize(("n", "d"), [(64, 64), (65, 64), (1000, 32), (100, 128)])
def test_the_grid_grows_with_n(run_stage: RunStage, n: int, d: int) -> None:
    """One launch; its blocks are heads, tiles of queries and batches."""
    batch, heads, block_rows = 2, 3, 32 if d == 128 else 64
    launches = run_stage(NAME, Problem(batch, heads, n, 10, d)).execution.launches
    assert [launch.grid for launch in launches] == [(heads, -(-n // block_rows), batch)]
    assert [launch.block for launch in launches] == [(block_rows, 1, 1)]


def test_o_is_written_once_and_nothing_of_it_is_read(run_stage: RunStage) -> None:
    """A lane writes a row of its own: each store of 4 bytes touches a sector. v1 does it for every tile."""
    n, m, d = 128, 256, 64
    v1, v1b = (run_stage(name, Problem(1, 1, n, m, d)).row for name in ("v1", NAME))
    lse = n * 4 // 32
    assert v1b["global_sectors_st"] == n * d + lse
    assert v1["global_sectors_st"] > (m // 32) * n * d
    # Q, by rows, once; K and V once a block.
    assert v1b["global_sectors_ld"] == n * d + n // 64 * 2 * m * d * 4 // 32


def test_the_scores_cost_what_they_cost_v1(run_stage: RunStage) -> None:
    """32-way conflicts in Q and P still: what is new are those of o_row, a row a lane."""
    n, m, d = 128, 128, 64
    row = run_stage(NAME, Problem(1, 1, n, m, d)).row
    warps, tiles, pairs = n // 32, m // 32, n // 32 * m
    assert row["conflicts_ld"] == (pairs * (2 * d + 1) + warps * (tiles + 1) * d) * 31
    assert row["conflicts_st"] == (pairs * 2 + warps * (tiles + 2) * d) * 31


def test_causal_skips_the_tiles_that_no_row_sees(run_stage: RunStage) -> None:
    n = m = 256
    full = run_stage(NAME, Problem(1, 1, n, m, 64)).row["wavefronts_ld"]
    causal = run_stage(NAME, Problem(1, 1, n, m, 64, is_causal=True)).row["wavefronts_ld"]
    assert 0.6 * full < causal < 0.65 * full  # (1 + 2 + 3 + 4) / 16 of the tiles
