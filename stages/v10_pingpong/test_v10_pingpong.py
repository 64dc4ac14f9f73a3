"""v10's claims: the work of v9 in another order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v10_pingpong"
HEAD_DIMS = (32, 64, 128, 256)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", HEAD_DIMS)
def test_the_work_is_that_of_v9(run_stage: RunStage, d: int, is_causal: bool) -> None:
    problem = Problem(1, 3, 333, 400, d, is_causal=is_causal)
    before, after = (run_stage(name, problem).row for name in ("v9", NAME))
    for column in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions", "global_sectors_st"):
        assert after[column] == before[column] > 0


def test_the_last_consumer_may_have_no_rows(run_stage: RunStage) -> None:
    """It passes its turns on: the others would wait forever."""
    run_stage(NAME, Problem(1, 1, 65, 700, 64))
    run_stage(NAME, Problem(1, 1, 65, 700, 256, is_causal=True))
