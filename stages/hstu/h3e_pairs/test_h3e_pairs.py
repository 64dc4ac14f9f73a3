"""h3e's claims: at d = 128 fewer fragments for the same products; elsewhere h3c's counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuBackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize(("d", "before", "now"), [(32, 128, 128), (64, 256, 256), (128, 768, 528)])
def test_fragments(run_stage: RunStage, d: int, before: int, now: int) -> None:
    """What warps load for 64 queries and 128 keys, in KB."""
    problem = HstuBackwardProblem(1, d, (64,), (128,), window=(-1, -1), dtype="f16")
    rows = [run_stage(stage, problem).row for stage in ("h3c_bias_gradient", "h3e_pairs")]
    assert [row["ldmatrix_instructions"] * 512 // 1024 for row in rows] == [before, now]
    assert rows[0]["mma_instructions"] == rows[1]["mma_instructions"]
    assert rows[1]["conflicts"] == 0
