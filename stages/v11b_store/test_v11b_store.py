"""v11b's claims: TMA stores O, in whole tiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v11b_store"
HEAD_DIMS = (32, 64, 128, 256)
CONSUMERS = {32: 3, 64: 3, 128: 3, 256: 2}


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", HEAD_DIMS)
def test_o_is_stored_by_tma(run_stage: RunStage, d: int, is_causal: bool) -> None:
    problem = Problem(1, 3, 333, 400, d, is_causal=is_causal)
    before, after = (run_stage(name, problem).row for name in ("v11", NAME))
    for column in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions"):
        assert after[column] == before[column] > 0
    items = 3 * -(-333 // (64 * CONSUMERS[d]))
    assert (before["tma_store_instructions"], after["tma_store_instructions"]) == (0, items * CONSUMERS[d])
    o_sectors = 3 * 333 * d * 2 // 32
    # From registers, an instruction writes half of a sector.
    assert after["global_sectors_st"] == before["global_sectors_st"] - 2 * o_sectors


@pytest.mark.parametrize("d", HEAD_DIMS)
@pytest.mark.parametrize("n", [1, 65, 300])
def test_writing_o_to_shared_memory_has_no_conflicts(run_stage: RunStage, n: int, d: int) -> None:
    row = run_stage(NAME, Problem(1, 2, n, 100, d, kv_heads=1)).row
    assert row["conflicts"] == 0 < row["wavefronts_st"]


@pytest.mark.parametrize("d", [32, 256])
def test_the_store_of_an_item_overlaps_the_next(run_stage: RunStage, d: int) -> None:
    """More work items than blocks, with two buffers of Q and with one."""
    run_stage(NAME, Problem(2, 100, 70, 70, d, kv_heads=25, dtype="bf16", is_causal=True))
