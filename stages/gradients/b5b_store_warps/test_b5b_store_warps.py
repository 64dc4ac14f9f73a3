"""b5b's claims: no `red`, two bulk additions and 256 wavefronts for the stores of dQ per step."""

from __future__ import annotations

from collections.abc import Callable

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

PROBLEM = BackwardProblem(1, 2, 256, 200, 128)
#: Per head, tiles of queries times tiles of keys.
STEPS = 2 * (256 // 64) * -(-200 // 128)
CONSUMERS, VALUES = 2, 64 * 128  # of a tile of dQ


def executed(result: Evaluation, instruction: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(instruction)]["executed"].sum()) for table in tables)


def test_tma_adds_dq(run_stage: RunStage) -> None:
    before, now = (run_stage(stage, PROBLEM) for stage in ("b5", "b5b_store_warps"))
    assert executed(before, "red.") == STEPS * VALUES // 128
    assert executed(now, "red.") == 0
    assert executed(before, "cp.reduce.async.bulk") == 0
    assert executed(now, "cp.reduce.async.bulk") == STEPS * CONSUMERS


def test_stores_of_dq_have_no_conflicts(run_stage: RunStage) -> None:
    """One wavefront per 128 bytes; the products are those of b5."""
    before, now = (run_stage(stage, PROBLEM).row for stage in ("b5", "b5b_store_warps"))
    assert now["wavefronts_st"] - before["wavefronts_st"] == STEPS * VALUES * 4 // 128
    assert (now["conflicts"], now["conflicts_gmma"]) == (0, 0)
    for same in ("wgmma_instructions", "wavefronts_gmma", "wavefronts_ld", "tma_load_instructions"):
        assert now[same] == before[same]
