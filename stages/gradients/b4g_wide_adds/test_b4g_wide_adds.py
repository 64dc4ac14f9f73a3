"""b4g's claims: dP in halves up to d = 64, and a quarter of the red instructions, 512 bytes each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


def additions(result: Evaluation, instruction: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(instruction)]["executed"].sum()) for table in tables)


@pytest.mark.parametrize("d", [32, 64, 128])
def test_dp_in_halves(run_stage: RunStage, d: int) -> None:
    """d / 16 more wgmma per step and warp: a product of 128 columns becomes two of 64. At d = 128 a tile is
    one half."""
    problem = BackwardProblem(1, 2, 256, 128, d)
    before, now = (run_stage(stage, problem).row for stage in ("b4e", "b4g_wide_adds"))
    steps = 2 * 256 // 128
    more = 0 if d == 128 else 8 * steps * d // 16
    assert now["wgmma_instructions"] - before["wgmma_instructions"] == more


@pytest.mark.parametrize(("d", "queries"), [(32, 128), (64, 128), (128, 64)])
def test_a_quarter_of_the_additions(run_stage: RunStage, d: int, queries: int) -> None:
    """A tile of dQ per step, four fp32 values per lane instead of one."""
    problem = BackwardProblem(1, 2, 256, 128, d)
    before, now = (run_stage(stage, problem) for stage in ("b4e", "b4g_wide_adds"))
    values = 2 * 256 // queries * queries * d
    assert additions(before, "red.relaxed.gpu.global.add.f32") == values // 32
    assert additions(now, "red.relaxed.gpu.global.add.v4.f32") == values // 128
    assert additions(now, "red.") == values // 128
