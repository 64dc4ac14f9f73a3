"""n1's claims: one thread issues the products, and each tile is loaded from tensor memory once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation, check_stage
from ladder.stages import discover

RunStage = Callable[..., Evaluation]
Executed = Callable[[Evaluation, str], int]

NAME = "n1_tmem"
HEAD_DIMS = (64, 128)


@pytest.mark.parametrize("d", HEAD_DIMS)
def test_one_thread_issues_the_products(run_stage: RunStage, executed: Executed, d: int) -> None:
    blocks, tiles = 2 * 2, 3
    evaluation = run_stage(NAME, Problem(1, 2, 129, (tiles - 1) * 128 + 1, d))
    row = evaluation.row
    assert row["mma_instructions"] == blocks * tiles * (d // 16 + 8)
    assert row["wgmma_instructions"] == 0
    assert row["tma_load_instructions"] == blocks * (1 + 2 * tiles)
    assert executed(evaluation, "tcgen05.commit") == blocks * tiles * 2
    words = 16 * 32  # of a load of .16x256b.x4 by a warp
    assert words * executed(evaluation, "tcgen05.ld") == blocks * tiles * (128 * 128 + 128 * d)


def test_causal_blocks_skip_tiles(run_stage: RunStage) -> None:
    row = run_stage(NAME, Problem(1, 1, 384, 384, 64, is_causal=True)).row
    assert row["mma_instructions"] == (1 + 2 + 3) * (64 // 16 + 8)


def test_it_runs_on_sm_100a_alone() -> None:
    assert discover()[NAME].only_arch == "sm_100a" and not discover()[NAME].is_own


def test_the_sanitizer_finds_nothing() -> None:
    assert check_stage(discover()[NAME], [Problem(1, 2, 200, 300, 64, is_causal=True)]) == []
