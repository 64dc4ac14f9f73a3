"""b5c's claims: 16 KB more of shared memory, and every other count as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import BackwardProblem

RunStage = Callable[..., Evaluation]

COUNTS = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "wavefronts_ld",
    "wavefronts_st",
    "tma_load_instructions",
    "tma_store_instructions",
    "global_sectors_ld",
    "global_sectors_st",
    "conflicts",
)


def test_one_more_buffer_and_the_same_counts(run_stage: RunStage) -> None:
    problem = BackwardProblem(1, 2, 256, 200, 128)
    before, now = (run_stage(stage, problem) for stage in ("b5b_store_warps", "b5c_third_q"))
    before_bytes, bytes_now = (
        max(launch.dynamic_smem_bytes for launch in result.execution.launches) for result in (before, now)
    )
    assert (before_bytes, bytes_now) == (202_752, 219_136)
    assert {name: now.row[name] for name in COUNTS} == {name: before.row[name] for name in COUNTS}


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_both_rings_wrap(run_stage: RunStage, steps: int) -> None:
    """One has three buffers, the other two."""
    run_stage("b5c_third_q", BackwardProblem(1, 1, 64 * steps, 128, 128, dtype="bf16"))
