"""b2's claims: five products, and dQ added 128 bytes at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "b2_one_pass"
MMA = 16 * 8 * 16  # the multiplications of an mma
QUERIES = {32: 64, 64: 64, 128: 32}  # of a tile
KEYS = {32: 128, 64: 128, 128: 64}  # of a block


@pytest.mark.parametrize("d", [32, 64, 128])
def test_five_products(run_stage: RunStage, d: int) -> None:
    n = m = 128
    row = run_stage(NAME, BackwardProblem(1, 1, n, m, d)).row
    assert row["mma_instructions"] == 5 * n * m * d // MMA


def additions(result: Evaluation) -> int:
    """How many times a warp adds 32 values to global memory."""
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith("red.")]["executed"].sum()) for table in tables)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_additions_by_formula(run_stage: RunStage, d: int, is_causal: bool) -> None:
    """A tile of dQ for each query tile and each key tile that it sees."""
    heads, n, m, queries, keys = 2, 300, 200, QUERIES[d], KEYS[d]
    result = run_stage(NAME, BackwardProblem(1, heads, n, m, d, is_causal=is_causal))
    query_tiles, key_tiles = -(-n // queries), -(-m // keys)
    seen = sum(query_tiles - (keys * j // queries if is_causal else 0) for j in range(key_tiles))
    assert additions(result) == heads * seen * queries * d // 32


@pytest.mark.parametrize("inputs", ["negative", "large", "dominant"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_keys_past_the_end_have_no_part(run_stage: RunStage, dtype: str, inputs: str) -> None:
    """Where lse is far below 0 a weight that is not masked is infinite, and its product with 0 is NaN."""
    run_stage(NAME, BackwardProblem(1, 1, 70, 33, 64, dtype=dtype, inputs=inputs, lse_gradient=True))
