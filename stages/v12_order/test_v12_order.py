"""v12's claim: v11b's work in another order. ``tests/stages/test_work_items.py`` tests the order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v12_order"


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_the_work_is_that_of_v11b(run_stage: RunStage, is_causal: bool) -> None:
    """More items than blocks; under a causal mask the second group of heads is smaller than the first."""
    problem = Problem(2, 50, 200, 70, 32, kv_heads=25, dtype="bf16", is_causal=is_causal)
    before, after = (run_stage(name, problem).row for name in ("v11b", NAME))
    for column in (
        "wgmma_instructions",
        "wavefronts_gmma",
        "tma_load_instructions",
        "tma_store_instructions",
        "global_sectors_st",
    ):
        assert after[column] == before[column] > 0
    assert after["conflicts"] == after["conflicts_gmma"] == 0
