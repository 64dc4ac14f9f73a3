"""b5c's claims: b5b's products and stores of dS, dQ^T for dQ, and dQ stored in whole rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME, BEFORE = "b5c_transposed_dq", "b5b"
PROBLEM = BackwardProblem(1, 2, 256, 200, 128)
SAME = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "wavefronts_ld",
    "tma_load_instructions",
    "conflicts",
    "conflicts_gmma",
)


def test_the_same_products(run_stage: RunStage) -> None:
    before, now = (run_stage(stage, PROBLEM).row for stage in (BEFORE, NAME))
    assert {name: now[name] for name in SAME} == {name: before[name] for name in SAME}


def stores_of_dq(result: Evaluation) -> int:
    """How many instructions of warps store dQ to global memory."""
    [launch] = [one for one in result.execution.launches if "round_dq" in one.kernel]
    table = launch.instructions()
    return int(table[table["ptx"].str.startswith("st.global")]["executed"].sum())


def test_dq_is_stored_in_whole_rows(run_stage: RunStage) -> None:
    """In b5b a warp stores 8 rows of 4 lanes at a time, half of a sector each: 16 instructions for its part
    of a tile. Here one TMA store has all parts of a tile.
    """
    before, now = (run_stage(stage, PROBLEM) for stage in (BEFORE, NAME))
    tiles, warps = PROBLEM.heads * PROBLEM.q_len // 64, 8
    assert (stores_of_dq(before), stores_of_dq(now)) == (16 * tiles * warps, 0)
    assert now.row["tma_store_instructions"] - before.row["tma_store_instructions"] == tiles


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_of_all_turns(run_stage: RunStage, steps: int) -> None:
    """The last tile has 63 queries, and the last block 1 key."""
    run_stage(NAME, BackwardProblem(1, 1, 64 * steps - 1, 129, 128, dtype="bf16", is_causal=True))
