"""b3's claims: the same bits in every run, on any number of host threads, and b2b's counts otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "b3_same_bits"


@pytest.mark.parametrize(
    "d", [pytest.param(32, marks=pytest.mark.full), 64, pytest.param(128, marks=pytest.mark.full)]
)
def test_the_same_bits(run_stage: RunStage, monkeypatch: pytest.MonkeyPatch, d: int) -> None:
    """100 runs in all, on 1, 2 and 16 host threads; three blocks of keys add to a tile of dQ."""
    problem = BackwardProblem(1, 2, 65, 300, d, kv_heads=1, dtype="bf16")
    first = run_stage(NAME, problem).execution.outputs
    for run in range(33):
        monkeypatch.setenv("LADDER_THREADS", ("1", "2", "16")[run % 3])
        other = run_stage(NAME, problem).execution.outputs
        assert all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_counts_of_b2c(run_stage: RunStage, d: int, is_causal: bool) -> None:
    problem = BackwardProblem(1, 4, 150, 300, d, kv_heads=2, is_causal=is_causal)
    b2, b3 = (run_stage(stage, problem).row for stage in ("b2b", NAME))
    for same in ("mma_instructions", "ldmatrix_instructions", "conflicts"):
        assert b3[same] == b2[same]
    assert b3["conflicts"] == 0
