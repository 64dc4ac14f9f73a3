"""b4's claims: b2's products on wgmma and additions to dQ, by formula; nothing serialised, no conflict."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import BackwardProblem
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "b4_wgmma"
HEAD_DIMS = (32, 64, 128)
CONSUMERS, WARPS = 2, 4  # warpgroups that compute, warps of each
KEYS, QUERIES = 64 * CONSUMERS, {32: 128, 64: 128, 128: 64}  # of a tile
DQ_COLS = {32: 32, 64: 64, 128: 64}  # of a consumer's share of dQ


def steps(problem: BackwardProblem) -> tuple[int, int]:
    """Blocks, and what they do in all: a step for each tile of keys and each of queries that sees it."""
    queries = QUERIES[problem.head_dim]
    query_tiles, key_tiles = -(-problem.q_len // queries), -(-problem.kv_len // KEYS)
    skipped = sum(min(query_tiles, KEYS * j // queries) if problem.is_causal else 0 for j in range(key_tiles))
    heads = problem.batch * problem.heads
    return problem.batch * problem.kv_heads * key_tiles, heads * (query_tiles * key_tiles - skipped)


def additions(result: Evaluation) -> int:
    """How many times a warp adds 4 x 32 values to global memory."""
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(
        int(table[table["ptx"].str.startswith("red.relaxed.gpu.global.add.v4.f32")]["executed"].sum())
        for table in tables
    )


@pytest.mark.parametrize(("dtype", "is_causal"), [("f16", False), ("bf16", True)])
@pytest.mark.parametrize("d", HEAD_DIMS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (100, 150), (300, 200)])
def test_no_conflicts(run_stage: RunStage, n: int, m: int, d: int, dtype: str, is_causal: bool) -> None:
    row = run_stage(NAME, BackwardProblem(1, 2, n, m, d, kv_heads=1, dtype=dtype, is_causal=is_causal)).row
    assert row["conflicts"] == row["conflicts_gmma"] == 0


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", HEAD_DIMS)
def test_counts_by_formula(run_stage: RunStage, d: int, is_causal: bool) -> None:
    problem = BackwardProblem(1, 4, 150, 300, d, kv_heads=2, is_causal=is_causal)
    result = run_stage(NAME, problem)
    row = result.row
    blocks, all_steps = steps(problem)
    queries, dq_cols = QUERIES[d], DQ_COLS[d]
    # A product is one wgmma for each 16 that it adds up. The first factor takes 16 wavefronts unless it is in
    # registers; dP^T is made 64 queries after the other.
    products = {  # how many, wavefronts of each
        "S": (d // 16, 16 + queries // 4),
        "dP": (queries // 64 * d // 16, 16 + 64 // 4),
        "dV": (queries // 16, d // 4),
        "dK": (queries // 16, d // 4),
        "dQ": (KEYS // 16, 16 + dq_cols // 4),
    }
    assert row["wgmma_instructions"] == all_steps * CONSUMERS * WARPS * sum(n for n, _ in products.values())
    assert row["wavefronts_gmma"] == all_steps * CONSUMERS * sum(n * each for n, each in products.values())
    # Each warp loads lse and delta of all queries, 8 bytes of 4 lanes in two wavefronts. dS^T is stored a
    # step, dK and dV a block: 128 bytes a wavefront.
    assert row["wavefronts_ld"] == all_steps * CONSUMERS * WARPS * queries // 2
    stored = all_steps * queries * 2 * KEYS + blocks * 2 * KEYS * d * 2
    assert row["wavefronts_st"] == stored // 128
    # K and V, dK and dV a block; Q, lse, dO and delta a step.
    assert row["tma_load_instructions"] == 2 * blocks + 4 * all_steps
    assert row["tma_store_instructions"] == 2 * blocks
    # The step's tile of dQ, four fp32 values a lane.
    assert additions(result) == all_steps * queries * d // (4 * 32)


def test_keys_that_no_query_sees(run_stage: RunStage) -> None:
    """Their blocks have no step, and their gradients are 0."""
    problem = BackwardProblem(1, 2, 40, 300, 64, kv_heads=1, is_causal=True)
    outputs = run_stage(NAME, problem).execution.outputs
    for name in ("dk", "dv"):
        assert outputs[name][:, :, :40].any() and not outputs[name][:, :, 40:].any()


@pytest.mark.parametrize("inputs", ["negative", "large", "dominant"])
@pytest.mark.parametrize(("dtype", "d"), [("f16", 64), ("bf16", 128)])
def test_keys_past_the_end_have_no_part(run_stage: RunStage, dtype: str, d: int, inputs: str) -> None:
    """Where lse is far below 0 a weight that is not masked is infinite, and its product with 0 is NaN."""
    run_stage(NAME, BackwardProblem(1, 1, 70, 33, d, dtype=dtype, inputs=inputs, lse_gradient=True))


@pytest.mark.parametrize(
    ("d", "options"),
    [(64, {"QUERIES": "64"}), (64, {"QUERIES": "64", "BUFFERS": "3"}), (128, {"BUFFERS": "3"})],
    ids=str,
)
def test_options(run_stage: RunStage, d: int, options: dict[str, str]) -> None:
    problem = BackwardProblem(1, 2, 300, 200, d, kv_heads=1, is_causal=True)
    needed = discover()[NAME].narrowed([problem])
    assert run_stage(needed, problem, options=options).row["conflicts"] == 0


def test_products_are_not_serialised_and_nothing_is_spilled(
    ptxas_report: Callable[[str], str], spilled_bytes: Callable[[str], list[int]]
) -> None:
    assert re.findall(r"\(C75\d+\)", ptxas_report(NAME)) == []
    spills = spilled_bytes(NAME)
    assert len(spills) >= 6 and set(spills) == {0}


def test_each_function_fits_a_page() -> None:
    text = discover()[NAME].kernel.read_text()
    bodies = re.findall(r"^template [^;]*?\) \{$.*?^}$", text, re.DOTALL | re.MULTILINE)
    assert len(bodies) >= 5 and max(len(body.splitlines()) for body in bodies) <= 110
