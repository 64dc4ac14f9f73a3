"""v9's claims: one warpgroup loads, the others compute, each for what its own rows see."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v9_roles"
HEAD_DIMS = (32, 64, 128, 256)
KEYS = {32: 128, 64: 128, 128: 80, 256: 64}  # per tile
CONSUMERS = {32: 3, 64: 3, 128: 3, 256: 2}


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_a_producer_beside_the_consumers(run_stage: RunStage, d: int) -> None:
    rows, tiles = 64 * CONSUMERS[d], 2
    result = run_stage(NAME, Problem(1, 1, rows, tiles * KEYS[d], d))
    [launch] = result.execution.launches
    assert (launch.grid, launch.block) == ((1, 1, 1), (128 * (CONSUMERS[d] + 1), 1, 1))
    assert result.row["wgmma_instructions"] == CONSUMERS[d] * tiles * 4 * (d // 16 + KEYS[d] // 16)
    assert result.row["tma_load_instructions"] == CONSUMERS[d] + 2 * tiles
    assert result.row["conflicts"] == result.row["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_causal_skips_what_no_row_of_a_consumer_sees(run_stage: RunStage, d: int) -> None:
    row = run_stage(NAME, Problem(1, 1, 384, 384, d, is_causal=True)).row
    tiles = sum(-(-(first + 64) // KEYS[d]) for first in range(0, 384, 64))
    assert row["wgmma_instructions"] == tiles * 4 * (d // 16 + KEYS[d] // 16)


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_consumers_without_rows_compute_nothing(run_stage: RunStage, d: int) -> None:
    """The producer loads for the block; one consumer has a row, and uses all tiles."""
    tiles = 4
    row = run_stage(NAME, Problem(1, 1, 1, tiles * KEYS[d], d)).row
    assert row["wgmma_instructions"] == tiles * 4 * (d // 16 + KEYS[d] // 16)
    assert row["tma_load_instructions"] == CONSUMERS[d] + 2 * tiles


def test_registers_move(ptxas_report: Callable[[str], str]) -> None:
    """ptxas heeds setmaxnreg, and compiles for what a thread has at launch."""
    report = ptxas_report(NAME)
    assert "setmaxnreg" not in report  # the remark C7508, that it is ignored
    assert set(re.findall(r"Used (\d+) registers", report)) == {str(65536 // 512), str(65536 // 384 // 8 * 8)}
