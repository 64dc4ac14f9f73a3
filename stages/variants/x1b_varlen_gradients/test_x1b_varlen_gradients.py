"""x1b's claims: every sequence costs what it costs alone, none writes what belongs to another, and a number
without tokens costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x1b_varlen_gradients"
COUNTS = ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions")
Q_LENS, KV_LENS = (100, 0, 193, 64, 70), (130, 20, 300, 10, 0)


def problem(
    q_lens: tuple[int, ...], kv_lens: tuple[int, ...], window: tuple[int, int] | None, **others: Any
) -> BackwardProblem:
    sizes = (len(q_lens), 2, max(q_lens), max(kv_lens), 64, 1)
    return BackwardProblem(*sizes, window=window, q_lens=q_lens, kv_lens=kv_lens, **others)


@pytest.mark.parametrize("window", [None, (-1, 0), (40, 9)])
def test_it_counts_what_its_sequences_count_alone(
    run_stage: RunStage, window: tuple[int, int] | None
) -> None:
    """A sequence without queries has the gradients of its keys stored, 0, after their keys are loaded. One
    without keys has those of its queries stored.
    """
    whole = run_stage(NAME, problem(Q_LENS, KV_LENS, window)).row
    alone = [
        run_stage(NAME, problem((n,), (m,), window)).row
        for n, m in zip(Q_LENS, KV_LENS, strict=True)
        if n and m
    ]
    of_keys, of_queries = -(-KV_LENS[1] // 128), 2 * -(-Q_LENS[4] // 128)
    others = {
        "wgmma_instructions": 0,
        "tma_load_instructions": 2 * of_keys,
        "tma_store_instructions": 2 * of_keys + of_queries,
    }
    for column in COUNTS:
        assert whole[column] == sum(row[column] for row in alone) + others[column], column
    assert whole["conflicts_gmma"] == 0


def test_equal_lengths_are_a_batch(run_stage: RunStage) -> None:
    """Three sequences of 192 queries are two tiles for each head, as in x2b."""
    lengths = {"q_lens": (192,) * 3, "kv_lens": (200,) * 3}
    jagged = run_stage(NAME, BackwardProblem(3, 2, 192, 200, 64, window=(50, 9), **lengths)).row
    batch = run_stage("x2b", BackwardProblem(3, 2, 192, 200, 64, window=(50, 9))).row
    for column in COUNTS:
        assert jagged[column] == batch[column], column


def test_what_nobody_reads_or_sees_has_no_gradient(run_stage: RunStage) -> None:
    """Sequence 1 has keys and no queries, sequence 4 queries and no keys; of sequence 3's 64 queries and 10
    keys the first 54 queries are before key 0.
    """
    found = run_stage(NAME, problem(Q_LENS, KV_LENS, (-1, 0), lse_gradient=True))
    outputs = {name: torch.as_tensor(found.execution.outputs[name]) for name in ("dq", "dk", "dv")}
    assert not outputs["dk"][130:150].any() and not outputs["dv"][130:150].any()
    assert not outputs["dq"][293:347].any() and outputs["dq"][347:357].flatten(1).any(1).all()
    assert not outputs["dq"][357:].any()
