"""h4's claims: what the arrangements cost is what the formulas say, counted by the emulator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import HstuProblem

RunStage = Callable[..., Evaluation]

N = M = 256
D = 64
#: No mask, so that every tile counts.
PROBLEM = HstuProblem(1, D, (N,), window=(-1, -1), dtype="f16")


@pytest.mark.parametrize(
    ("options", "rows_a_warp", "q_resident", "keys"),
    [
        ({}, 32, True, 64),  # the arrangement of its own
        pytest.param({"ROWS": "16"}, 16, True, 64, marks=pytest.mark.full),
        pytest.param({"ROWS": "16", "Q_IN_REGISTERS": "0"}, 16, False, 64, marks=pytest.mark.full),
        pytest.param(
            {"ROWS": "16", "Q_IN_REGISTERS": "0", "KEYS": "32"}, 16, False, 32, marks=pytest.mark.full
        ),
    ],
)
def test_ldmatrix_by_formula(
    run_stage: RunStage, options: dict[str, str], rows_a_warp: int, q_resident: bool, keys: int
) -> None:
    row = run_stage("h4_arrangement", PROBLEM, options=options).row
    keys_and_values = 2 * (N // rows_a_warp) * (M // 16) * (D // 16)
    queries = 0 if q_resident else (N // 16) * (D // 16) * (M // keys)
    assert row["ldmatrix_instructions"] == keys_and_values + queries
    assert row["conflicts"] == 0


@pytest.mark.full
def test_sharing_out_the_keys_costs_the_same_ldmatrix(run_stage: RunStage) -> None:
    rows = [
        run_stage("h4_arrangement", PROBLEM, options={"OVER_KEYS": str(over), "ROWS": "16"}).row
        for over in (0, 1)
    ]
    assert rows[0]["ldmatrix_instructions"] == rows[1]["ldmatrix_instructions"]
    assert rows[0]["mma_instructions"] == rows[1]["mma_instructions"]
    assert rows[1]["conflicts"] == 0
