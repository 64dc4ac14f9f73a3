"""x4b's claims: one special function more per logit, no more products or loads, no slope beyond the cap."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x4b_softcap_gradients"


def executed(result: Evaluation, instruction: str) -> int:
    tables = [launch.instructions() for launch in result.execution.launches]
    return sum(int(table[table["ptx"].str.startswith(instruction)]["executed"].sum()) for table in tables)


def test_one_special_function_more_per_logit(run_stage: RunStage) -> None:
    """128 keys and two tiles of 128 queries: each lane of eight warps has 128 logits."""
    capped = run_stage(NAME, BackwardProblem(1, 1, 256, 128, 64, softcap=30.0))
    uncapped = run_stage("x2b", BackwardProblem(1, 1, 256, 128, 64, window=(999, 999)))
    functions = ("ex2.approx", "tanh.approx", "lg2.approx")
    assert [executed(capped, name) for name in functions] == [8 * 128, 8 * 128, 0]
    assert [executed(uncapped, name) for name in functions] == [8 * 128, 0, 0]
    for column in ("wgmma_instructions", "tma_load_instructions", "conflicts_gmma"):
        assert capped.row[column] == uncapped.row[column], column


def test_beyond_the_cap_the_slope_is_0(run_stage: RunStage) -> None:
    """Logits of 160 and more, capped at 0.5: tanh is 1, and neither q nor k moves anything."""
    problem = BackwardProblem(1, 1, 64, 80, 128, softcap=0.5, scale=1.0, inputs="negative")
    outputs = run_stage(NAME, problem).execution.outputs
    largest = {name: float(torch.as_tensor(outputs[name]).abs().max()) for name in ("dq", "dk", "dv")}
    assert largest["dq"] < 1e-3 and largest["dk"] < 1e-3 < 0.1 < largest["dv"]
