"""h3's claims: the bias is added by no instruction, and each of its tiles is read once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


def problem(bias_heads: int, **fields: object) -> HstuProblem:
    return HstuProblem(2, 64, (128, 100), bias_heads=bias_heads, dtype="f16", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("bias_heads", [1, 2])
def test_a_bias_costs_no_product_and_no_conflict(run_stage: RunStage, bias_heads: int) -> None:
    """h2 has the same tiles."""
    row = run_stage("h3_rab", problem(bias_heads, targets=(20, 0))).row
    plain = run_stage("h2", problem(0, targets=(20, 0))).row
    assert row["mma_instructions"] == plain["mma_instructions"]
    assert row["conflicts"] == 0


def test_each_tile_of_the_bias_is_read_once(run_stage: RunStage) -> None:
    """No mask, sequences that tiles fit: beside what h2 reads, the bias is 2 bytes an element."""
    whole = HstuProblem(2, 64, (128, 128), window=(-1, -1), dtype="f16")
    biased = HstuProblem(2, 64, (128, 128), window=(-1, -1), bias_heads=2, dtype="f16")
    extra = (
        run_stage("h3_rab", biased).row["global_sectors_ld"] - run_stage("h2", whole).row["global_sectors_ld"]
    )
    assert extra == 2 * 2 * 128 * 128 * 2 // 32
