"""x1's claims: every sequence costs what it costs alone, and none reads or writes what belongs to another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x1_varlen"
COUNTS = ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions")
Q_LENS, KV_LENS = (100, 0, 193, 64), (130, 20, 300, 10)


def together(window: tuple[int, int] | None, **others: str) -> Problem:
    sizes = (len(Q_LENS), 2, max(Q_LENS), max(KV_LENS), 64, 1)
    return Problem(*sizes, window=window, q_lens=Q_LENS, kv_lens=KV_LENS, **others)


@pytest.mark.parametrize("window", [None, (-1, 0), (40, 9)])
def test_it_counts_what_its_sequences_count_alone(
    run_stage: RunStage, window: tuple[int, int] | None
) -> None:
    whole = run_stage(NAME, together(window)).row
    alone = [
        run_stage(NAME, Problem(1, 2, n, m, 64, 1, window=window, q_lens=(n,), kv_lens=(m,))).row
        for n, m in zip(Q_LENS, KV_LENS, strict=True)
        if n
    ]
    for column in COUNTS:
        assert whole[column] == sum(row[column] for row in alone), column
    assert whole["conflicts"] == whole["conflicts_gmma"] == 0


def test_equal_lengths_are_a_batch(run_stage: RunStage) -> None:
    """Three sequences of 192 queries are three tiles for each head, as in x2."""
    lengths = {"q_lens": (192,) * 3, "kv_lens": (200,) * 3}
    jagged = run_stage(NAME, Problem(3, 2, 192, 200, 64, window=(50, 9), **lengths)).row
    batch = run_stage("x2", Problem(3, 2, 192, 200, 64, window=(50, 9))).row
    for column in COUNTS:
        assert jagged[column] == batch[column], column
