"""b4f's claim: at d up to 64, dP in two halves; at d = 128, where a tile is one half, b4e's counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_dp_in_halves(run_stage: RunStage, d: int) -> None:
    """d / 16 more wgmma per step and warp: a product of 128 columns becomes two of 64."""
    problem = BackwardProblem(1, 2, 256, 128, d)
    before, now = (run_stage(stage, problem).row for stage in ("b4e_overlap", "b4f_halves"))
    steps = 2 * 256 // 128
    more = 0 if d == 128 else 8 * steps * d // 16
    assert now["wgmma_instructions"] - before["wgmma_instructions"] == more
