"""b2b's claims: b2's products with fewer fragments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME, BEFORE = "b2b_pairs", "b2_one_pass"


@pytest.mark.parametrize(("d", "before", "now"), [(32, 208, 160), (64, 256, 208), (128, 768, 528)])
def test_each_fragment_serves_twice(run_stage: RunStage, d: int, before: int, now: int) -> None:
    """Of 64 queries and 128 keys, in KB: what warps load as fragments."""
    problem = BackwardProblem(1, 1, 64, 128, d)
    rows = [run_stage(stage, problem).row for stage in (BEFORE, NAME)]
    assert [row["ldmatrix_instructions"] * 512 // 1024 for row in rows] == [before, now]
    assert rows[0]["mma_instructions"] == rows[1]["mma_instructions"]
