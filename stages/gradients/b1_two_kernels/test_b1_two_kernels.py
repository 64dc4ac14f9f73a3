"""b1's claims: seven products and no atomics."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "b1_two_kernels"
MMA = 16 * 8 * 16  # the multiplications of an mma


@pytest.mark.parametrize("d", [32, 64, 128])
def test_seven_products(run_stage: RunStage, d: int) -> None:
    n = m = 128
    row = run_stage(NAME, BackwardProblem(1, 1, n, m, d)).row
    assert row["mma_instructions"] == 7 * n * m * d // MMA


def test_nothing_is_added_to_what_others_wrote(run_stage: RunStage) -> None:
    launches = run_stage(NAME, BackwardProblem(1, 2, 100, 150, 64)).execution.launches
    executed = {word for launch in launches for word in launch.instructions()["ptx"].str.split(".").str[0]}
    assert "mma" in executed
    assert not executed & {"red", "atom"}


def test_the_same_bits(run_stage: RunStage) -> None:
    problem = BackwardProblem(1, 4, 100, 150, 64, kv_heads=2, is_causal=True)
    first, *others = (run_stage(NAME, problem).execution.outputs for _ in range(10))
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)
