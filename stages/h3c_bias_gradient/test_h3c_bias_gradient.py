"""h3c's claims: the bias costs no product and no conflict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import HstuBackwardProblem

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("bias_heads", [1, 2])
@pytest.mark.parametrize("d", [32, 128])
def test_no_more_products(run_stage: RunStage, d: int, bias_heads: int) -> None:
    plain, biased = (
        run_stage(stage, HstuBackwardProblem(2, d, (100, 130), bias_heads=heads, dtype="f16")).row
        for stage, heads in (("h3b_gradients", 0), ("h3c_bias_gradient", bias_heads))
    )
    assert biased["mma_instructions"] == plain["mma_instructions"]
    assert biased["conflicts"] == 0
