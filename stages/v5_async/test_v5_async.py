"""v5's claims: v4's work to the last count, with K and V loaded by cp.async into two buffers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v5_async"


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_the_work_is_that_of_v4(run_stage: RunStage, d: int, is_causal: bool) -> None:
    """But for the stores: what cp.async writes into shared memory no warp stores."""
    problem = Problem(1, 2, 300, 333, d, kv_heads=1, is_causal=is_causal)
    v4, v5 = (run_stage(name, problem).row for name in ("v4", NAME))
    for column in ("ldmatrix_instructions", "mma_instructions", "global_sectors_ld", "global_sectors_st"):
        assert v5[column] == v4[column], column
    q_stores = 2 * 2 * 256 * d * 2 // 512 if d == 128 else 0
    assert v5["shared_store_instructions"] == q_stores < v4["shared_store_instructions"]
    assert v5["error"] == v4["error"]
