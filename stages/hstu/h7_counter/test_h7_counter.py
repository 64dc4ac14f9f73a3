"""h7's claims: h6b's work, and a counter that is 0 again after each launch, items without queries counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.compile import build
from ladder.operations import HstuProblem, get_operation
from ladder.run.backends import get_backend
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "h7_counter"
#: More items than an H200 has multiprocessors, with two buffers of Q and with one. The short sequences have
#: fewer items than the longest one, and one sequence has none.
MANY = [
    HstuProblem(50, 32, (200, 5, 0, 193), contexts=(3, 0, 0, 0), dtype="bf16"),
    HstuProblem(70, 256, (130, 1, 70), targets=(9, 0, 70), dtype="f16"),
]


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_the_work_is_that_of_h6b(run_stage: RunStage, problem: HstuProblem) -> None:
    before, after = (run_stage(name, problem).row for name in ("h6b_store", NAME))
    for column in (
        "wgmma_instructions",
        "wavefronts_gmma",
        "tma_load_instructions",
        "tma_store_instructions",
    ):
        assert after[column] == before[column] > 0
    assert after["conflicts"] == after["conflicts_gmma"] == 0


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_launches_follow_each_other(problem: HstuProblem) -> None:
    """In one process, where the counter stays: it counts to the number of items and begins again."""
    stage, backend = discover()[NAME], get_backend("emulator")
    target = backend.target(stage, None)
    inputs = get_operation("hstu").make_inputs(problem)
    with backend.runner(build(stage, target, {}), target) as runner:
        first, *others = (runner.run(problem, inputs) for _ in range(3))
    for other in others:
        for name, output in first.outputs.items():
            assert not output.isnan().any()
            assert torch.equal(other.outputs[name], output)
