"""d1's claims: splits multiply the blocks and change no result; each head reads its keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import DecodingProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "d1_split_kv"


def blocks(found: Evaluation) -> int:
    """The blocks of the first launch."""
    x, y, z = found.execution.launches[0].grid
    return int(x * y * z)


@pytest.mark.parametrize("splits", [1, 2, 5, 16])
def test_the_keys_are_split_over_blocks(run_stage: RunStage, splits: int) -> None:
    """Each key's tile is multiplied once, whatever the number of splits; the parts are merged by one more
    launch.
    """
    found = run_stage(NAME, DecodingProblem(1, 2, 1, 1024, 64, num_splits=splits))
    assert blocks(found) == 2 * splits
    assert len(found.execution.launches) == (1 if splits == 1 else 2)
    assert found.row["mma_instructions"] == 2 * (1024 // 16) * 2 * (2 * 64 // 16)
    assert found.row["conflicts"] == 0


@pytest.mark.parametrize(
    ("problem", "splits"),
    [
        (DecodingProblem(1, 1, 1, 16, 128), 1),  # one step of keys
        (DecodingProblem(1, 4, 1, 4096, 128), 64),  # 256 of 324 slots: each block has one step of 64 keys
        (DecodingProblem(1, 320, 1, 1024, 128), 1),  # one wave is nearly full
        (DecodingProblem(1, 200, 1, 1024, 128), 3),  # two waves of a third each, instead of most of one
    ],
)
def test_the_rule_fills_waves(run_stage: RunStage, problem: DecodingProblem, splits: int) -> None:
    """108 multiprocessors of an sm_80, with three blocks each."""
    assert blocks(run_stage(NAME, problem)) == problem.heads * splits


def test_every_head_of_a_group_reads_the_keys(run_stage: RunStage) -> None:
    """What d2 does away with."""
    one, four = (
        run_stage(NAME, DecodingProblem(1, heads, 1, 512, 64, kv_heads=1, num_splits=1)).row
        for heads in (1, 4)
    )
    assert four["global_sectors_ld"] == 4 * one["global_sectors_ld"]
