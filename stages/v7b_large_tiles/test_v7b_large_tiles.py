"""v7b's claims: v7's products in larger tiles, which read Q less often, and d = 256."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v7b_large_tiles"
KEYS = {32: 128, 64: 128, 128: 128, 256: 64}  # per tile
WARPGROUPS = {32: 3, 64: 3, 128: 2, 256: 2}


@pytest.mark.parametrize("d", KEYS)
def test_products_of_a_block(run_stage: RunStage, d: int) -> None:
    """Per warpgroup and tile d / 16 for S, with Q in shared memory, and keys / 16 for O; no conflict."""
    keys, warpgroups = KEYS[d], WARPGROUPS[d]
    result = run_stage(NAME, Problem(1, 1, 64 * warpgroups, 2 * keys - 7, d))
    [launch] = result.execution.launches
    assert (launch.grid, launch.block) == ((1, 1, 1), (128 * warpgroups, 1, 1))
    assert result.row["wgmma_instructions"] == warpgroups * 2 * 4 * (d // 16 + keys // 16)
    assert result.row["wavefronts_gmma"] == warpgroups * 2 * (
        d // 16 * (16 + keys // 4) + keys // 16 * (d // 4)
    )
    assert result.row["conflicts"] == result.row["conflicts_gmma"] == 0


def test_reads_of_q_per_key_become_fewer(run_stage: RunStage) -> None:
    """At d = 128, v7 reads Q once per 32 keys, v7b once per 128."""
    problem = Problem(1, 1, 256, 128, 128)
    before, after = (run_stage(name, problem).row["wavefronts_gmma"] for name in ("v7_wgmma", NAME))
    of_q = 4 * 8 * 16  # of each of four warpgroups, per tile
    assert before - after == (4 - 1) * of_q
