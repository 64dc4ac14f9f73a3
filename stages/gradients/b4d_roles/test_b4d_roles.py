"""b4d's claims: a producer warpgroup beside two consumers, which compute as b4b's warpgroups do, and
store dK and dV in whole rows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME, BEFORE = "b4d_roles", "b4b"


@pytest.mark.parametrize("d", [32, 64, 128])
def test_a_third_warpgroup_and_the_same_counts(run_stage: RunStage, d: int) -> None:
    problem = BackwardProblem(1, 4, 150, 300, d, kv_heads=2, is_causal=True)
    before, now = (run_stage(stage, problem) for stage in (BEFORE, NAME))
    threads = [max(launch.block[0] for launch in result.execution.launches) for result in (before, now)]
    assert threads == [256, 384]
    for same in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions"):
        assert now.row[same] == before.row[same]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_two_stores_per_block(run_stage: RunStage, d: int) -> None:
    """What the threads of b4b store as dK and dV, TMA stores in half as many sectors' parts."""
    n, m = 128, 256
    problem = BackwardProblem(1, 2, n, m, d)
    before, row = (run_stage(stage, problem).row for stage in (BEFORE, NAME))
    gradients = 2 * 2 * m * d * 2 // 32  # sectors of dK and dV
    assert before["tma_store_instructions"] == 0 and row["tma_store_instructions"] == 2 * 2 * m // 128
    assert before["global_sectors_st"] - row["global_sectors_st"] == 2 * gradients
    assert row["tma_sectors_st"] == gradients
