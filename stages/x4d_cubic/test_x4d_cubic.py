"""x4d's claims: no tanh.approx while logits are small, and only warps with larger ones use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import Problem

RunStage = Callable[..., Evaluation]

NAME = "x4d_cubic"


def tanhs(result: Evaluation) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(t[t["ptx"].str.startswith("tanh.approx.f32")]["executed"].sum()) for t in tables)


def test_small_logits_take_no_tanh(run_stage: RunStage) -> None:
    """Standard normal logits are below 0.4 x 30; the last of five tiles has 10 keys, so it is masked."""
    assert tanhs(run_stage(NAME, Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=30.0))) == 0
    assert tanhs(run_stage(NAME, Problem(1, 1, 192, 330, 128, dtype="bf16", softcap=30.0))) == 12 * 40


@pytest.mark.parametrize("scale", [None, -0.1])
def test_large_logits_take_one_each(run_stage: RunStage, scale: float | None) -> None:
    """Logits in the hundreds, of either sign."""
    problem = Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=30.0, scale=scale, inputs="large")
    assert tanhs(run_stage(NAME, problem)) == 12 * 4 * 40


@pytest.mark.parametrize("softcap", [0.5, 6.0])
def test_logits_around_the_limit(run_stage: RunStage, softcap: float) -> None:
    """Some warps are on either side of 0.4 c; the fixture checks o and lse."""
    found = tanhs(run_stage(NAME, Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=softcap, scale=0.06)))
    assert 0 < found <= 12 * 4 * 40
