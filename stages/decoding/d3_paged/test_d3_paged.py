"""d3's claims: pages cost their table and nothing else, whatever their size and order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ladder.operations import DecodingProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "d3_paged"
PROBLEM = DecodingProblem(2, 8, 1, 1200, 64, kv_heads=2, lengths=(1200, 333), num_splits=1)


@pytest.mark.parametrize("page_size", [16, 48, 64, 128, 256])
def test_pages_cost_their_table(run_stage: RunStage, page_size: int) -> None:
    """A warp looks up the pages of 32 tiles at a time: lane i that of tile i, 64 keys further each."""
    dense, paged = (run_stage(NAME, replace(PROBLEM, page_size=size)).row for size in (0, page_size))
    for column in ("mma_instructions", "ldmatrix_instructions", "global_sectors_st"):
        assert paged[column] == dense[column]
    entries = sum(
        len({key // page_size * 4 // 32 + 0 * b for key in keys})
        for b, length in enumerate(PROBLEM.all_lengths)
        for warp in range(4)
        for keys in [range(16 * warp, length, 64)]
    )
    table = paged["global_sectors_ld"] - dense["global_sectors_ld"]
    # Rows of the table begin within a sector: at most one more per look-up.
    assert 0 < table <= 2 * (entries + 4 * 2)


def test_a_dense_cache_reads_the_same_sectors_as_in_d2(run_stage: RunStage) -> None:
    before, after = (run_stage(name, PROBLEM).row for name in ("d2", NAME))
    for column in ("global_sectors_ld", "global_sectors_st", "mma_instructions"):
        assert after[column] == before[column]


def test_the_keys_beyond_the_length_are_never_read(run_stage: RunStage) -> None:
    """They are NaN, and so are the pages that no sequence has; 0 * NaN in V would be NaN."""
    problem = replace(PROBLEM, lengths=(17, 1), kv_len=64, page_size=32)
    assert run_stage(NAME, problem).passed
