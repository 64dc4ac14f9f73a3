"""v9b's claims: at d = 128 three consumers share tiles of 80 keys; at the other head dims it is v9."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v9b_three_consumers"


def test_three_consumers_share_tiles_of_80_keys(run_stage: RunStage) -> None:
    consumers, keys, tiles, d = 3, 80, 2, 128
    result = run_stage(NAME, Problem(1, 1, 64 * consumers, tiles * keys - 7, d))
    [launch] = result.execution.launches
    assert (launch.grid, launch.block) == ((1, 1, 1), (128 * (consumers + 1), 1, 1))
    assert result.row["wgmma_instructions"] == consumers * tiles * 4 * (d // 16 + keys // 16)
    assert result.row["tma_load_instructions"] == consumers + 2 * tiles
    assert result.row["conflicts"] == result.row["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", [32, 64, 256])
def test_other_head_dims_are_v9s(run_stage: RunStage, d: int) -> None:
    problem = Problem(1, 1, 200, 150, d, is_causal=True)
    before, after = (run_stage(name, problem).row for name in ("v9_roles", NAME))
    for column in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions", "global_sectors_st"):
        assert after[column] == before[column] > 0, column
