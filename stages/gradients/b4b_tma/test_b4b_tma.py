"""b4b's claim: one TMA load per tile and per row statistic, and no load of Q, K, V or dO by a thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize(("d", "queries"), [(32, 128), (64, 128), (128, 64)])
def test_tma_loads_by_formula(run_stage: RunStage, d: int, queries: int) -> None:
    """K and V per block of 128 keys; Q, lse, dO and delta per step. Threads load lse, O and dO for the row
    statistics, and the sums of dQ.
    """
    n, m = 256, 300
    row = run_stage("b4b_tma", BackwardProblem(1, 2, n, m, d)).row
    blocks, steps = 2 * 3, 2 * 3 * n // queries
    assert row["tma_load_instructions"] == 2 * blocks + 4 * steps
    of_a_row = 2 * 2 * d + 4 * d  # bytes of O and dO, and of the sums
    lse = 2 * n // (256 // d)  # sectors: one per warp, which has so many rows
    assert row["global_sectors_ld"] == 2 * n * of_a_row // 32 + lse
