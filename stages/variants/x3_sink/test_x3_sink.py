"""x3's claims: a sink is one more key without a value, and costs no instruction per tile."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x3_sink"


def test_it_counts_what_x2_counts(run_stage: RunStage) -> None:
    """But for one load of the head's sink per warp and work item: 2 heads with 2 items of 3 consumers."""
    sinks = run_stage(NAME, Problem(1, 2, 256, 300, 64, window=(100, 0), sinks=True)).row
    without = run_stage("x2", Problem(1, 2, 256, 300, 64, window=(100, 0))).row
    for column in ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions", "conflicts"):
        assert sinks[column] == without[column], column
    assert sinks["global_sectors_ld"] - without["global_sectors_ld"] == 2 * 2 * 12


def test_rows_that_see_no_key_have_the_sink_alone(run_stage: RunStage) -> None:
    """Of 300 queries and 40 keys the first 260 are before key 0."""
    problem = Problem(1, 2, 300, 40, 64, window=(-1, 0), sinks=True)
    result = run_stage(NAME, problem)
    o, lse = (torch.as_tensor(result.execution.outputs[name])[0, :, :260] for name in ("o", "lse"))
    assert torch.equal(o, torch.zeros_like(o))
    assert (lse == lse[:, :1]).all() and float(lse[0, 0]) != float(lse[1, 0])
