"""The emulator's and the GPU's outputs for the same inputs agree.

They are rarely equal, since the GPU's rounding of ex2.approx and mma is undocumented. But they are closer to
each other than two implementations need to be: within the bound of each to the exact result.
"""

from __future__ import annotations

import pytest
import torch

from ladder.operations import AnyProblem, get_operation
from ladder.run.evaluation import evaluate
from ladder.stages import Stage, discover


def cases() -> list[object]:
    """None without a GPU: a thousand tests to be skipped would take their time, too."""
    if not torch.cuda.is_available():
        return []
    return [
        pytest.param(stage, problem, id=f"{stage.name}-{problem}".replace(" ", "-"))
        for stage in discover()
        for problem in get_operation(stage.computes).matrix(stage.dtypes, stage.head_dims)
    ]


@pytest.mark.parametrize(("stage", "problem"), cases())
def test_gpu_and_emulator_agree(stage: Stage, problem: AnyProblem) -> None:
    emulated = evaluate(stage, problem, backend="emulator")
    measured = evaluate(stage, problem, backend="cuda")
    assert emulated.passed and measured.passed, f"{emulated.text}\n{measured.text}"
    for name, bound in emulated.reference.bounds.items():
        ours, theirs = emulated.execution.outputs[name], measured.execution.outputs[name].cpu()
        assert (theirs.double() - ours.double()).abs().max().item() <= bound, name
