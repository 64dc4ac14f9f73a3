"""v12b's claims: v12's work, and a counter that is 0 again after every launch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.compile import build
from ladder.operations import Problem, get_operation
from ladder.run.backends import get_backend
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "v12b_counter"
#: More items than an H200 has multiprocessors, with two buffers of Q and with one.
MANY = [
    Problem(2, 50, 200, 70, 32, kv_heads=25, dtype="bf16", is_causal=True),
    Problem(1, 140, 130, 70, 256, kv_heads=1, dtype="f16"),
]


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_the_work_is_that_of_v12(run_stage: RunStage, problem: Problem) -> None:
    before, after = (run_stage(name, problem).row for name in ("v12", NAME))
    for column in (
        "wgmma_instructions",
        "wavefronts_gmma",
        "tma_load_instructions",
        "tma_store_instructions",
        "global_sectors_st",
    ):
        assert after[column] == before[column] > 0
    assert after["conflicts"] == after["conflicts_gmma"] == 0


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_launches_follow_each_other(problem: Problem) -> None:
    """In one process, where the counter stays: it counts to the number of items and begins again."""
    stage, backend = discover()[NAME], get_backend("emulator")
    target = backend.target(stage, None)
    operation = get_operation("attention")
    inputs = operation.make_inputs(problem)
    with backend.runner(build(stage, target, {}), target) as runner:
        first, *others = (runner.run(problem, inputs) for _ in range(3))
    for other in others:
        for name, output in first.outputs.items():
            assert not output.isnan().any()
            assert torch.equal(other.outputs[name], output)
