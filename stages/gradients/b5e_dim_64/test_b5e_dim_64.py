"""b5e's claims: d = 64 with 128 queries per step, and d = 128 as b5d computes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "b5e_dim_64"
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
QUERIES = 384
#: Heads times tiles of keys.
TILES = 2 * -(-200 // 128)


def test_wavefronts_of_operands_per_step(run_stage: RunStage) -> None:
    now = run_stage(NAME, BackwardProblem(1, 2, QUERIES, 200, 64)).row
    assert now["wavefronts_gmma"] == TILES * QUERIES // 128 * 1792
    assert (now["conflicts"], now["conflicts_gmma"]) == (0, 0)


def test_d_128_is_that_of_b5d(run_stage: RunStage) -> None:
    problem = BackwardProblem(1, 2, 320, 200, 128)
    before, now = (run_stage(stage, problem).row for stage in ("b5d_loads_ahead", NAME))
    assert {name: now[name] for name in COUNTS} == {name: before[name] for name in COUNTS}


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_of_all_turns(run_stage: RunStage, steps: int) -> None:
    """The last tile has 127 queries, and the last block 1 key."""
    run_stage(NAME, BackwardProblem(1, 1, 128 * steps - 1, 129, 64, dtype="bf16", is_causal=True))


def test_all_parts_of_a_tile(run_stage: RunStage) -> None:
    """The exponentials of 32 and 96 queries, and the columns of dQ^T of both consumers."""
    run_stage(NAME, BackwardProblem(1, 1, 100, 70, 64, inputs="large"))
