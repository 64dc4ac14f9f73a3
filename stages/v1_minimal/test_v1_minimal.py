"""v1's claims: one thread a row means 32-way conflicts, and nothing but row-wise access conflicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.counts import by_kernel_line, line_table
from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


def test_each_multiply_add_waits_for_33_wavefronts(run_stage: RunStage) -> None:
    """One word of K or V for all lanes, and 32 words of Q or P in one bank."""
    n, m, d = 128, 128, 64
    row = run_stage("v1_minimal", Problem(1, 1, n, m, d)).row
    pairs = n // 32 * m  # of a warp and a key
    q_tiles = n // 32 * m // 32  # loads of a warp's rows of Q, Bc = 32
    assert row["conflicts_ld"] == pairs * (2 * d + 1) * 31
    assert row["conflicts_st"] == (pairs * 2 + q_tiles * d) * 31
    assert row["wavefronts_ld"] == pairs * (2 * d * 33 + 32)
    assert row["shared_load_instructions"] == pairs * (4 * d + 1)


@pytest.mark.parametrize("d", [32, 64, 128])
def test_conflicts_are_a_large_multiple_of_what_is_needed(run_stage: RunStage, d: int) -> None:
    result = run_stage("v1_minimal", Problem(1, 2, 100, 77, d, kv_heads=1, is_causal=True))
    table = line_table(result.execution.launches)
    ideal = table["ideal_ld"].sum() + table["ideal_st"].sum()
    assert result.row["conflicts"] > 8 * int(ideal)


def test_only_row_wise_accesses_conflict(run_stage: RunStage) -> None:
    result = run_stage("v1_minimal", Problem(1, 1, 100, 77, 64))
    [kernel] = [
        file
        for file in by_kernel_line(line_table(result.execution.launches))
        if file.path.name == "kernel.cu" and file.path.parent.name == "v1_minimal"
    ]
    conflicting = {text.strip() for _, text, counts in kernel.listing() if counts and counts.conflicts}
    assert conflicting
    assert all("q_row" in line or "s_row" in line for line in conflicting), conflicting
