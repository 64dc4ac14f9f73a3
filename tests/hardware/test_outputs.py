"""The same inputs on the emulator and on the GPU: the outputs agree with each other.

They are rarely equal: ex2.approx and mma round on the GPU as no document says. But they are closer to each
other than two implementations need to be: within the bound that each has to keep to the true result.
"""

from __future__ import annotations

import pytest
import torch

from ladder.comparison import evaluate
from ladder.matrix import pairwise_problems
from ladder.problem import Problem
from ladder.stages import Stage, discover

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def cases() -> list[object]:
    return [
        pytest.param(stage, problem, id=f"{stage.name}-{problem}".replace(" ", "-"))
        for stage in discover()
        for problem in pairwise_problems(stage.dtypes, stage.head_dims)
    ]


@pytest.mark.parametrize(("stage", "problem"), cases())
def test_gpu_and_emulator_agree(stage: Stage, problem: Problem) -> None:
    emulated = evaluate(stage, problem, backend="emulator")
    measured = evaluate(stage, problem, backend="cuda")
    assert emulated.passed and measured.passed, f"{emulated.describe()}\n{measured.describe()}"
    difference = (measured.execution.o.cpu().double() - emulated.execution.o.double()).abs().max().item()
    lse_difference = (measured.execution.lse.cpu() - emulated.execution.lse).abs().max().item()
    assert difference <= emulated.reference.error_bound
    assert lse_difference <= emulated.reference.lse_bound
