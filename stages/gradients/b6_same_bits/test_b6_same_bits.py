"""b6's claims: the same bits in every run, in any order of blocks, and b5e's counts otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "b6_same_bits"
#: Four or five key tiles add to a tile of dQ: additions of two would commute.
ORDERED = [
    BackwardProblem(1, 2, 65, 600, 128, kv_heads=1),
    BackwardProblem(1, 1, 512, 512, 128, is_causal=True),
    BackwardProblem(1, 1, 129, 513, 64),
]
COUNTS = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "tma_load_instructions",
    "tma_store_instructions",
    "conflicts",
)


@pytest.mark.parametrize("problem", ORDERED, ids=str)
def test_the_same_bits(
    run_stage: RunStage, monkeypatch: pytest.MonkeyPatch, problem: BackwardProblem
) -> None:
    """Thoroughly: also with the last blocks first, interleaved with the others."""
    first = run_stage(NAME, problem, thoroughly=True).execution.outputs
    for threads in ("1", "2", "16"):
        monkeypatch.setenv("LADDER_THREADS", threads)
        other = run_stage(NAME, problem).execution.outputs
        assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(("d", "queries"), [(64, 384), (128, 240)])
def test_counts_of_b5e(run_stage: RunStage, d: int, queries: int) -> None:
    """Each of the two store warps writes a counter per step."""
    problem = BackwardProblem(1, 2, queries, 200, d)
    b5e, b6 = (run_stage(stage, problem).row for stage in ("b5e", NAME))
    assert {name: b6[name] for name in COUNTS} == {name: b5e[name] for name in COUNTS}
    steps = 2 * 2 * 3  # heads, key tiles, tiles of queries
    assert b6["global_sectors_st"] - b5e["global_sectors_st"] == 2 * steps
