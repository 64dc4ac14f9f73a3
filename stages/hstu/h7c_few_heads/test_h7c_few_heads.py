"""h7c's claims: another order of the same work, also if the last group has fewer heads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h7c_few_heads"
COUNTED = ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions", "conflicts")


@pytest.mark.parametrize(
    "problem",
    [
        HstuProblem(1, 64, (333,)),
        HstuProblem(7, 64, (250, 0, 193), contexts=(3, 0, 100), targets=(40, 0, 1), target_group_size=3),
        HstuProblem(80, 128, (193, 70), (200, 90), window=(50, 20), dtype="bf16"),
        HstuProblem(17, 256, (129,), intervals=True, dtype="bf16"),
    ],
    ids=str,
)
def test_the_work_is_that_of_h7b(run_stage: RunStage, problem: HstuProblem) -> None:
    before, after = (run_stage(name, problem).row for name in ("h7b_end_aligned", NAME))
    assert {name: after[name] for name in COUNTED} == {name: before[name] for name in COUNTED}
