"""b4c's claim: dK and dV leave in whole rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_two_stores_per_block(run_stage: RunStage, d: int) -> None:
    """What the threads of b4b store as dK and dV, TMA stores in half as many sectors' parts."""
    n, m = 128, 256
    problem = BackwardProblem(1, 2, n, m, d)
    before, row = (run_stage(stage, problem).row for stage in ("b4b_tma", "b4c_tma_stores"))
    gradients = 2 * 2 * m * d * 2 // 32  # sectors of dK and dV
    assert before["tma_store_instructions"] == 0 and row["tma_store_instructions"] == 2 * 2 * m // 128
    assert before["global_sectors_st"] - row["global_sectors_st"] == 2 * gradients
    assert row["tma_sectors_st"] == gradients
