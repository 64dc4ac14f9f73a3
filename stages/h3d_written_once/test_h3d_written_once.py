"""h3d's claim: what h3c clears first is not written twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import HstuBackwardProblem

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_sectors_of_one_pass_less(run_stage: RunStage, d: int) -> None:
    """Without a mask the blocks store all of the gradient, and h3c stores all of it once more."""
    heads, n = 2, 128
    problem = HstuBackwardProblem(heads, d, (n,), window=(-1, -1), bias_heads=heads, dtype="f16")
    before, now = (run_stage(stage, problem).row for stage in ("h3c_bias_gradient", "h3d_written_once"))
    assert before["global_sectors_st"] - now["global_sectors_st"] == heads * n * n * 4 // 32


def test_a_shared_gradient_is_still_cleared(run_stage: RunStage) -> None:
    problem = HstuBackwardProblem(2, 32, (100,), bias_heads=1, dtype="f16")
    before, now = (run_stage(stage, problem).execution for stage in ("h3c_bias_gradient", "h3d_written_once"))
    assert len(now.launches) == len(before.launches) == 3
