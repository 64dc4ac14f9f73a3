"""v11's claims: v10b's products and loads, by one block per SM."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v11_persistent"
HEAD_DIMS = (32, 64, 128, 256)
MULTIPROCESSORS = 132


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", HEAD_DIMS)
def test_the_work_is_that_of_v10b(run_stage: RunStage, d: int, is_causal: bool) -> None:
    problem = Problem(1, 3, 333, 400, d, is_causal=is_causal)
    before, after = (run_stage(name, problem).row for name in ("v10b", NAME))
    for column in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions", "global_sectors_st"):
        assert after[column] == before[column] > 0


def test_no_more_blocks_than_multiprocessors(run_stage: RunStage) -> None:
    """More work items than blocks: every block takes more than one."""
    [launch] = run_stage(NAME, Problem(1, 2 * MULTIPROCESSORS + 3, 1, 1, 32)).execution.launches
    assert launch.grid == (MULTIPROCESSORS, 1, 1)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_more_work_than_blocks(run_stage: RunStage, is_causal: bool) -> None:
    run_stage(NAME, Problem(2, 50, 200, 70, 32, kv_heads=25, dtype="bf16", is_causal=is_causal))
