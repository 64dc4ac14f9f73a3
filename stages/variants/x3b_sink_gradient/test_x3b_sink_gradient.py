"""x3b's claims: one more kernel, and the others as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x3b_sink_gradient"


@pytest.mark.parametrize("window", [(100, 9), None])
def test_one_more_kernel(run_stage: RunStage, window: tuple[int, int] | None) -> None:
    """A block per head reads lse and delta of its rows once."""
    problem = BackwardProblem(2, 3, 200, 200, 64, window=window, sinks=True)
    result = run_stage(NAME, problem)
    without = BackwardProblem(2, 3, 200, 200, 64, window=window or (999, 999))
    before = run_stage("x2b", without)
    for column in ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions", "conflicts"):
        assert result.row[column] == before.row[column], column
    assert len(result.execution.launches) == len(before.execution.launches) + 1
