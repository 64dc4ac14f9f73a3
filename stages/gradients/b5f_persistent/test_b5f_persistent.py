"""b5f's claims: b5e's work on as many blocks as multiprocessors, whose turns go on from item to item."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.compile import build
from ladder.operations import BackwardProblem, operation_of
from ladder.run.backends import Treatment, get_backend
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "b5f_persistent"
COUNTS = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "wavefronts_ld",
    "wavefronts_st",
    "tma_load_instructions",
    "tma_store_instructions",
    "global_sectors_st",
    "conflicts",
)


#: Key/value heads times tiles of keys.
ITEMS = 2 * 2 * 2


@pytest.mark.parametrize("d", [64, 128])
def test_the_work_is_that_of_b5e(run_stage: RunStage, d: int) -> None:
    problem = BackwardProblem(2, 4, 320, 200, d, kv_heads=2, is_causal=True)
    before, now = (run_stage(stage, problem).row for stage in ("b5e", NAME))
    # Each block is told of one item, and that there are no more: a store, and loads by ten warps.
    told = 2 * ITEMS
    extra = {"wavefronts_st": told, "wavefronts_ld": 10 * told}
    assert {name: now[name] for name in COUNTS} == {
        name: before[name] + extra.get(name, 0) for name in COUNTS
    }


@pytest.mark.parametrize(
    "problem",
    [
        # One, two and three steps, and key tiles that no query sees: the turns begin anywhere.
        BackwardProblem(1, 3, 200, 700, 64, dtype="bf16", is_causal=True),
        BackwardProblem(2, 2, 239, 300, 128, dtype="f16", is_causal=True),
    ],
    ids=str,
)
def test_items_follow_each_other(problem: BackwardProblem) -> None:
    """On two multiprocessors, in three launches: the counter is 0 again."""
    stage, backend = discover()[NAME], get_backend("emulator")
    target = backend.target(stage, None)
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    expected = operation.reference(problem, inputs)
    with backend.runner(build(stage, target, {}), target) as runner:
        for _ in range(3):
            run = runner.run(problem, inputs, treatment=Treatment(multiprocessors=2))
            assert expected.passed(expected.errors(run.outputs))
