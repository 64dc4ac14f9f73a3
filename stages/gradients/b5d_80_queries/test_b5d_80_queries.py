"""b5d's claims: 80 queries per step, 2,368 wavefronts of operands for them, and no conflicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

#: So many queries are whole tiles of 64 and of 80.
QUERIES = 320
PROBLEM = BackwardProblem(1, 2, QUERIES, 200, 128)
#: Heads times tiles of keys.
TILES = 2 * -(-200 // 128)


def test_wavefronts_of_operands_per_step(run_stage: RunStage) -> None:
    before, now = (run_stage(stage, PROBLEM).row for stage in ("b5b", "b5d_80_queries"))
    assert before["wavefronts_gmma"] == TILES * QUERIES // 64 * 2048
    assert now["wavefronts_gmma"] == TILES * QUERIES // 80 * 2368
    assert (now["conflicts"], now["conflicts_gmma"]) == (0, 0)
    assert now["wavefronts_ld"] == before["wavefronts_ld"]  # as many per query


def test_shared_memory(run_stage: RunStage) -> None:
    result = run_stage("b5d_80_queries", PROBLEM)
    assert max(launch.dynamic_smem_bytes for launch in result.execution.launches) == 231_424


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_steps_of_all_turns(run_stage: RunStage, steps: int) -> None:
    """The last tile has 79 queries, and the last block 1 key."""
    run_stage("b5d_80_queries", BackwardProblem(1, 1, 80 * steps - 1, 129, 128, dtype="bf16", is_causal=True))
