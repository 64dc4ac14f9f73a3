"""h1's claims: any jagged batch, one special function a weight, no conflict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.errors import UnsupportedProblem
from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


@pytest.mark.parametrize("d", [32, 64, 128, 256])
def test_lengths_from_nothing_to_many_tiles(run_stage: RunStage, d: int) -> None:
    problem = HstuProblem(1, d, (0, 1, 17, 400), (0, 1, 17, 500), dtype="bf16", inputs="strided")
    assert run_stage("h1_silu", problem).row["conflicts"] == 0


def test_one_special_function_a_weight(run_stage: RunStage) -> None:
    """Tiles of 32 queries and 32 keys: a lane has 32 of a tile's weights."""
    evaluation = run_stage("h1_silu", HstuProblem(1, 64, (32,), dtype="f16"))
    instructions = evaluation.execution.launches[0].instructions()
    special = instructions[instructions["ptx"].str.contains("approx")]
    assert int(special["executed"].sum()) == 32


def test_refuses_what_it_does_not_take(run_stage: RunStage) -> None:
    with pytest.raises(UnsupportedProblem, match="h1_silu takes no masks"):
        run_stage("h1_silu", HstuProblem(1, 64, (64,), window=(3, 0)))
    with pytest.raises(UnsupportedProblem, match="h1_silu takes no bias"):
        run_stage("h1_silu", HstuProblem(1, 64, (64,), bias_heads=1))
