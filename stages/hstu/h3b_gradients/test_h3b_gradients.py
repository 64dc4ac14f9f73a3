"""h3b's claims: five products for the forward pass's two, no conflict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuBackwardProblem, HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("d", [32, 64, 128])
def test_five_products_where_the_forward_pass_has_two(run_stage: RunStage, d: int) -> None:
    """No mask, sequences that the tiles of both fit."""
    sizes = {"heads": 2, "head_dim": d, "q_lens": (128, 256), "window": (-1, -1), "dtype": "f16"}
    forward = run_stage("h2", HstuProblem(**sizes)).row  # type: ignore[arg-type]
    row = run_stage("h3b_gradients", HstuBackwardProblem(**sizes)).row  # type: ignore[arg-type]
    assert 2 * row["mma_instructions"] == 5 * forward["mma_instructions"]
    assert row["conflicts"] == 0
