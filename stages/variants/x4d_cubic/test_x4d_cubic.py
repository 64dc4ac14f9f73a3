"""x4d's claims: no tanh.approx while logits are small, and only warps with larger ones use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

import ladder
from ladder.operations import Problem, get_operation
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x4d_cubic"


def tanhs(result: Evaluation) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(t[t["ptx"].str.startswith("tanh.approx.f32")]["executed"].sum()) for t in tables)


def test_small_logits_take_no_tanh(run_stage: RunStage) -> None:
    """Standard normal logits are below 0.4 x 30; the last of five tiles has 10 keys, so it is masked."""
    assert tanhs(run_stage(NAME, Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=30.0))) == 0
    assert tanhs(run_stage(NAME, Problem(1, 1, 192, 330, 128, dtype="bf16", softcap=30.0))) == 12 * 40


def test_at_256_there_is_no_polynomial(run_stage: RunStage) -> None:
    """A logit takes tanh there, however small: of eight warps, two tiles of 16 x 64."""
    result = run_stage(NAME, Problem(1, 1, 128, 128, 256, dtype="bf16", softcap=30.0))
    assert tanhs(result) == 8 * 2 * 32


@pytest.mark.parametrize("scale", [None, -0.1])
def test_large_logits_take_one_each(run_stage: RunStage, scale: float | None) -> None:
    """Logits in the hundreds, of either sign."""
    problem = Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=30.0, scale=scale, inputs="large")
    assert tanhs(run_stage(NAME, problem)) == 12 * 4 * 40


def test_warps_decide_for_each_tile(run_stage: RunStage) -> None:
    """About half of the tiles of 16 x 80 logits exceed 0.4 c somewhere; the fixture checks o and lse."""
    problem = Problem(1, 1, 192, 320, 128, dtype="bf16", softcap=6.0, scale=0.06)
    inputs: Mapping[str, Any] = get_operation("attention").make_inputs(problem)
    logits = 0.06 * (inputs["q"][0, 0].double() @ inputs["k"][0, 0].double().T)
    large = logits.abs().reshape(12, 16, 4, 80).amax((1, 3)) > 0.4 * 6.0
    assert tanhs(run_stage(NAME, problem)) == 40 * int(large.sum())
    assert 12 < int(large.sum()) < 36


@pytest.mark.parametrize("power", [100, -100])
def test_logits_are_the_same_whatever_the_scale(power: int) -> None:
    """Of products of 2^100 the square is no number of fp32, and of a scale of 2^100 the cube is none."""
    generator = torch.Generator().manual_seed(1)
    shapes = (64, 160, 160)
    query, key, value = (torch.randn(1, 1, n, 128, generator=generator).bfloat16() for n in shapes)
    o, lse = ladder.attention(query, key, value, softcap=30.0, scale=0.125, stage="x4c")
    scaled = query * 2.0**power, key, value
    o_scaled, lse_scaled = ladder.attention(*scaled, softcap=30.0, scale=0.125 * 2.0**-power, stage=NAME)
    assert torch.equal(o, o_scaled) and torch.equal(lse, lse_scaled)
