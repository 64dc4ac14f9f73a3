"""x4c's claims: nothing of a running maximum up to the largest cap in bf16, and exact lse with few keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x4c_fixed_reference"
PROBLEM = Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=30.0)


def executed(result: Evaluation, instruction: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(instruction)]["executed"].sum()) for table in tables)


def test_no_maximum_and_no_vote_in_bf16(run_stage: RunStage) -> None:
    """Of twelve warps, 192 rows and four tiles of keys."""
    fixed, followed = run_stage(NAME, PROBLEM), run_stage("x4", PROBLEM)
    assert executed(fixed, "vote") == 0 < 12 * 4 == executed(followed, "vote")
    assert executed(fixed, "max.f32") < 12 < executed(followed, "max.f32")
    assert executed(fixed, "tanh.approx.f32") == executed(followed, "tanh.approx.f32") == 12 * 4 * 40
    for column in ("wgmma_instructions", "tma_load_instructions", "conflicts"):
        assert fixed.row[column] == followed.row[column], column


@pytest.mark.parametrize(
    ("dtype", "softcap", "votes"), [("bf16", 55.0, 0), ("bf16", 55.5, 48), ("f16", 30.0, 48)]
)
def test_larger_caps_and_f16_follow_the_maximum(
    run_stage: RunStage, dtype: str, softcap: float, votes: int
) -> None:
    problem = Problem(1, 1, 192, 320, 128, dtype=dtype, softcap=softcap)
    assert executed(run_stage(NAME, problem), "vote") == votes


@pytest.mark.parametrize("scale", [100.0, -100.0])
def test_weights_of_logits_at_the_cap_are_numbers(run_stage: RunStage, scale: float) -> None:
    """All logits are 55 or -55: weights of 2^62 or 2^-96."""
    problem = Problem(1, 1, 64, 80, 128, dtype="bf16", softcap=55.0, scale=scale, inputs="negative")
    lse = torch.as_tensor(run_stage(NAME, problem).execution.outputs["lse"])
    sign = -1.0 if scale > 0 else 1.0
    assert torch.allclose(lse, torch.log(torch.tensor(80.0)) + sign * 55.0, rtol=0, atol=55.0 * 2.0**-11)


def test_the_reference_does_not_cost_lse_precision(run_stage: RunStage) -> None:
    """One key with a logit of 0: lse is log(1), exactly."""
    problem = Problem(1, 1, 64, 1, 128, dtype="bf16", softcap=50.0, scale=0.0)
    assert torch.as_tensor(run_stage(NAME, problem).execution.outputs["lse"]).abs().max() == 0
