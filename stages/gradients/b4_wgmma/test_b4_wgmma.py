"""Claims of b4_wgmma and the rungs above: products by formula."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

RUNGS = ("b4_wgmma", "b4b", "b4d", "b4e", "b4g")
HALVES = ("b4g",)
HEAD_DIMS = (32, 64, 128)
WARPGROUPS, WARPS = 2, 4  # with 64 keys each, warps of each
KEYS, QUERIES = 64 * WARPGROUPS, {32: 128, 64: 128, 128: 64}  # of a tile
DQ_COLS = {32: 32, 64: 64, 128: 64}  # of a warpgroup's share of dQ


def steps(problem: BackwardProblem) -> tuple[int, int]:
    """Blocks, and their steps in all: one for each tile of keys and each tile of queries that sees it."""
    queries = QUERIES[problem.head_dim]
    query_tiles, key_tiles = -(-problem.q_len // queries), -(-problem.kv_len // KEYS)
    skipped = sum(min(query_tiles, KEYS * j // queries) if problem.is_causal else 0 for j in range(key_tiles))
    heads = problem.batch * problem.heads
    return problem.batch * problem.kv_heads * key_tiles, heads * (query_tiles * key_tiles - skipped)


@pytest.mark.parametrize("stage", RUNGS)
@pytest.mark.parametrize(("d", "is_causal"), [(32, False), (64, True), (128, True)])
def test_products_by_formula(run_stage: RunStage, stage: str, d: int, is_causal: bool) -> None:
    problem = BackwardProblem(1, 4, 150, 300, d, kv_heads=2, is_causal=is_causal)
    row = run_stage(stage, problem).row
    _, all_steps = steps(problem)
    queries = QUERIES[d]
    parts = queries // 64 if stage in HALVES else 1
    # A product is one wgmma for each 16 that it adds up. Operand A takes 16 wavefronts unless it is in
    # registers.
    products = {  # how many, wavefronts of each
        "S": (d // 16, 16 + queries // 4),
        "dP": (parts * d // 16, 16 + queries // parts // 4),
        "dV": (queries // 16, d // 4),
        "dK": (queries // 16, d // 4),
        "dQ": (KEYS // 16, 16 + DQ_COLS[d] // 4),
    }
    assert row["wgmma_instructions"] == all_steps * WARPGROUPS * WARPS * sum(n for n, _ in products.values())
    assert row["wavefronts_gmma"] == all_steps * WARPGROUPS * sum(n * each for n, each in products.values())
    # Each warp loads lse and delta of all queries, 8 bytes of 4 lanes in two wavefronts.
    assert row["wavefronts_ld"] == all_steps * WARPGROUPS * WARPS * queries // 2


@pytest.mark.parametrize("stage", RUNGS)
def test_keys_that_no_query_sees(run_stage: RunStage, stage: str) -> None:
    """Their blocks have no step, and their gradients are 0."""
    problem = BackwardProblem(1, 2, 40, 300, 64, kv_heads=1, is_causal=True)
    outputs = run_stage(stage, problem).execution.outputs
    for name in ("dk", "dv"):
        assert outputs[name][:, :, :40].any() and not outputs[name][:, :, 40:].any()


@pytest.mark.parametrize("stage", ["b4_wgmma", "b4g"])
@pytest.mark.parametrize("inputs", ["negative", "large", "dominant"])
@pytest.mark.parametrize(("dtype", "d"), [("f16", 64), ("bf16", 128)])
def test_keys_past_the_end_have_no_part(
    run_stage: RunStage, stage: str, dtype: str, d: int, inputs: str
) -> None:
    """Where lse is far below 0 a weight that is not masked is infinite, and its product with 0 is NaN."""
    run_stage(stage, BackwardProblem(1, 1, 70, 33, d, dtype=dtype, inputs=inputs, lse_gradient=True))
