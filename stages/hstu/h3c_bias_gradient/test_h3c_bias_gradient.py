"""h3c's claims: the bias costs no product and no conflict, and its gradient is written once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuBackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h3c_bias_gradient"


@pytest.mark.parametrize("bias_heads", [1, 2])
@pytest.mark.parametrize("d", [32, 128])
def test_no_more_products(run_stage: RunStage, d: int, bias_heads: int) -> None:
    plain, biased = (
        run_stage(stage, HstuBackwardProblem(2, d, (100, 130), bias_heads=heads, dtype="f16")).row
        for stage, heads in (("h3b", 0), (NAME, bias_heads))
    )
    assert biased["mma_instructions"] == plain["mma_instructions"]
    assert biased["conflicts"] == 0


@pytest.mark.parametrize("d", [32, 64, 128])
def test_the_gradient_of_the_bias_is_written_once(run_stage: RunStage, d: int) -> None:
    """A causal mask hides half of the pairs: their zeros are stored, and nothing is cleared first."""
    heads, n = 2, 128
    plain, biased = (
        run_stage(NAME, HstuBackwardProblem(heads, d, (n,), bias_heads=count, dtype="f16"))
        for count in (0, heads)
    )
    assert len(biased.execution.launches) == len(plain.execution.launches) == 2
    sectors = biased.row["global_sectors_st"] - plain.row["global_sectors_st"]
    assert sectors == heads * n * n * 4 // 32


def test_a_shared_gradient_is_cleared_first(run_stage: RunStage) -> None:
    problem = HstuBackwardProblem(2, 32, (100,), bias_heads=1, dtype="f16")
    assert len(run_stage(NAME, problem).execution.launches) == 3
