"""n2's claims: the same products as n1's, and O leaves tensor memory only to be rescaled and at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]
Executed = Callable[[Evaluation, str], int]

NAME, BEFORE = "n2_o_in_tmem", "n1"
WORDS = 16 * 32  # of a load or store of .16x256b.x4 by a warp


@pytest.mark.parametrize("inputs", ["equal", "rising"])
@pytest.mark.parametrize("d", [64, 128])
def test_o_is_loaded_to_be_rescaled(run_stage: RunStage, executed: Executed, d: int, inputs: str) -> None:
    """Whatever a warp stores it has loaded; equal logits never move the maximum again."""
    blocks, tiles = 2 * 2, 3
    evaluation = run_stage(NAME, Problem(1, 2, 200, 300, d, inputs=inputs))
    stored = WORDS * executed(evaluation, "tcgen05.st")
    loaded = WORDS * executed(evaluation, "tcgen05.ld")
    assert loaded == blocks * (tiles * 128 * 128 + 128 * d) + stored
    assert (stored > 0) == (inputs == "rising")


@pytest.mark.parametrize("d", [64, 128])
def test_the_products_are_those_of_n1(run_stage: RunStage, d: int) -> None:
    problem = Problem(1, 2, 200, 300, d)
    before, after = (run_stage(name, problem).row for name in (BEFORE, NAME))
    for name in ("mma_instructions", "tma_load_instructions", "wavefronts_st"):
        assert before[name] == after[name]
