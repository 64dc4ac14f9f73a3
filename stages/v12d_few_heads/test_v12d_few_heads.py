"""v12d's claims: another order of the same work, also if the last group has fewer heads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v12d_few_heads"
COUNTED = ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions", "conflicts")


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (1, 16), (3, 7), (2, 80)])
def test_the_work_is_that_of_v12c(run_stage: RunStage, batch: int, heads: int, is_causal: bool) -> None:
    problem = Problem(batch, heads, 193, 150, 64, kv_heads=1, is_causal=is_causal)
    before, after = (run_stage(name, problem).row for name in ("v12c_end_aligned", NAME))
    assert {name: after[name] for name in COUNTED} == {name: before[name] for name in COUNTED}
