"""b4d's claim: a producer warpgroup beside two consumers, which do what b4c's warpgroups do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_a_third_warpgroup_and_the_same_counts(run_stage: RunStage, d: int) -> None:
    problem = BackwardProblem(1, 4, 150, 300, d, kv_heads=2, is_causal=True)
    before, now = (run_stage(stage, problem) for stage in ("b4c_tma_stores", "b4d_roles"))
    threads = [max(launch.block[0] for launch in result.execution.launches) for result in (before, now)]
    assert threads == [256, 384]
    for same in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions", "tma_store_instructions"):
        assert now.row[same] == before.row[same]
