"""v2's claims: which accesses conflict, how often, and that the others do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.counts import by_kernel_line, line_table
from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

# Rows of 64 (d = 32), 128 and 256 bytes: so many of the 8 rows of a pass of ldmatrix meet in a bank.
WAYS = {32: 4, 64: 8, 128: 8}
BR = 64
KEYS = {32: 64, 64: 48, 128: 32}  # of a tile


@pytest.mark.parametrize("d", sorted(WAYS))
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_conflicts_follow_from_the_row_length(run_stage: RunStage, d: int, dtype: str) -> None:
    heads, n, m = 2, 100, 150
    row = run_stage("v2_warp_mma", Problem(1, heads, n, m, d, dtype=dtype)).row
    warps = heads * -(-n // BR) * 4
    tiles = -(-m // KEYS[d])
    # Of K and of V a warp loads every 16x16 part of a tile by one ldmatrix, in four passes of 8 rows.
    parts = warps * tiles * 2 * (KEYS[d] // 16) * (d // 16)
    assert row["ldmatrix_instructions"] == parts
    assert row["conflicts_ld"] == parts * 4 * (WAYS[d] - 1)
    assert row["mma_instructions"] == 2 * parts
    # Nothing else is in shared memory. Each tile is stored along its rows, 16 bytes a lane.
    blocks, tile_bytes = warps // 4, KEYS[d] * d * 2
    assert row["shared_load_instructions"] == 0
    assert row["shared_store_instructions"] == blocks * tiles * 2 * tile_bytes // 512
    assert row["conflicts_st"] == 0


def test_conflicts_are_at_ldmatrix_of_k_and_v(run_stage: RunStage) -> None:
    result = run_stage("v2_warp_mma", Problem(1, 2, 100, 150, 64, is_causal=True))
    [kernel] = [
        file
        for file in by_kernel_line(line_table(result.execution.launches))
        if file.path.name == "kernel.cu" and file.path.parent.name == "v2_warp_mma"
    ]
    conflicting = [text.strip() for _, text, counts in kernel.listing() if counts and counts.conflicts]
    assert [line.split(",")[0] for line in conflicting] == ["ldmatrix_x4(k_rmem", "ldmatrix_x4_trans(v_rmem"]


def test_causal_skips_the_tiles_beyond_the_diagonal(run_stage: RunStage) -> None:
    problem = {"batch": 1, "heads": 1, "q_len": 256, "kv_len": 256, "head_dim": 64}
    full = run_stage("v2_warp_mma", Problem(**problem)).row
    causal = run_stage("v2_warp_mma", Problem(**problem, is_causal=True)).row
    assert causal["mma_instructions"] * 16 == full["mma_instructions"] * 10


@pytest.mark.parametrize("d", sorted(WAYS))
def test_half_the_depth_on_sm_75(run_stage: RunStage, d: int) -> None:
    problem = Problem(1, 2, 70, 90, d, dtype="f16", is_causal=True)
    old = run_stage("v2_warp_mma", problem, arch="sm_75").row
    new = run_stage("v2_warp_mma", problem, arch="sm_80").row
    assert old["mma_instructions"] == 2 * new["mma_instructions"]
    assert old["conflicts"] == new["conflicts"]
