"""x4's claims: one tanh.approx per logit, no more products or loads, and logits that stay below the cap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x4_softcap"


def executed(result: Evaluation, instruction: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(instruction)]["executed"].sum()) for table in tables)


def test_one_special_function_more_per_logit(run_stage: RunStage) -> None:
    """192 rows and two tiles of 80 keys: each lane of twelve warps has 80 logits."""
    capped = run_stage(NAME, Problem(1, 1, 192, 160, 128, softcap=30.0))
    uncapped = run_stage("x2", Problem(1, 1, 192, 160, 128, window=(999, 999)))
    assert executed(capped, "tanh.approx.f32") == 12 * 80
    assert executed(uncapped, "tanh") == 0
    for column in ("wgmma_instructions", "tma_load_instructions", "conflicts"):
        assert capped.row[column] == uncapped.row[column], column


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_logits_beyond_the_cap_are_alike(run_stage: RunStage, scale: float) -> None:
    """Logits of 160 and more, capped at 0.5: the weights of two keys differ by e at most."""
    problem = Problem(1, 1, 64, 80, 128, softcap=0.5, scale=scale, inputs="negative")
    lse = torch.as_tensor(run_stage(NAME, problem).execution.outputs["lse"])
    sign = -1.0 if scale > 0 else 1.0
    assert torch.allclose(lse, torch.log(torch.tensor(80.0)) + sign * 0.5, rtol=0, atol=2.0**-11)
