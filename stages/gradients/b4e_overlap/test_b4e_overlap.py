"""b4e's claim: the consumers meet at an mbarrier, not at a barrier of the block, and wait less often."""

from __future__ import annotations

from collections.abc import Callable

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


def executed(result: Evaluation, start: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(start)]["executed"].sum()) for table in tables)


def test_no_barrier_per_step(run_stage: RunStage) -> None:
    """b4d's consumers, 8 warps, meet once per step and once after the last one. Both meet twice around the
    stores of dK and dV.
    """
    problem = BackwardProblem(1, 1, 640, 128, 64)
    before, now = (run_stage(stage, problem) for stage in ("b4d", "b4e_overlap"))
    steps = 640 // 128
    assert executed(before, "bar.sync") - executed(now, "bar.sync") == 8 * (steps + 1)
    assert before.row["wgmma_instructions"] == now.row["wgmma_instructions"]
