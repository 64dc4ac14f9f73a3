"""h4's claims: up to 32 queries the warps split the keys, with the counts that the formulas give."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h4_arrangement"
M = 512


def executed(result: Evaluation, instruction: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(instruction)]["executed"].sum()) for table in tables)


@pytest.mark.parametrize(
    ("n", "d", "rows", "keys", "block_rows", "buffer_keys"),
    [
        (256, 64, 32, 32, 128, 32),  # split queries
        (256, 128, 32, 32, 128, 32),
        (16, 64, 16, 32, 16, 128),  # split keys
        (16, 128, 16, 16, 16, 64),
    ],
)
def test_counts_by_formula(
    run_stage: RunStage, n: int, d: int, rows: int, keys: int, block_rows: int, buffer_keys: int
) -> None:
    """No mask, so that every tile counts. The warps' tiles have ``rows`` queries and ``keys`` keys."""
    result = run_stage(NAME, HstuProblem(1, d, (n,), (M,), window=(-1, -1), dtype="f16"))
    keys_and_values = 2 * (n // rows) * (M // 16) * (d // 16)
    queries = (n // 16) * (d // 16) * (M // keys) if d >= 128 else 0
    assert result.row["ldmatrix_instructions"] == keys_and_values + queries
    assert executed(result, "cp.async.cg") == (n // block_rows) * 4 * (M + buffer_keys) * d // 512
    assert result.row["conflicts"] == 0


def test_half_the_products_of_h2(run_stage: RunStage) -> None:
    """Of 16 queries: a warp of h2 has 32 rows, half of them out of range."""
    problem = HstuProblem(1, 64, (16,), (M,), window=(-1, -1), dtype="f16")
    split_queries, split_keys = (run_stage(stage, problem).row for stage in ("h2", NAME))
    assert 2 * split_keys["mma_instructions"] == split_queries["mma_instructions"]
