"""h3g's claim: the same bits in every run, on any number of host threads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import HstuBackwardProblem
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "h3g_same_bits"

#: Of one dtype and head dim, whose kernels compile in seconds.
ORDERED = [
    # Heads share a bias, and the mask leaves gaps between the key tiles that a query tile needs.
    HstuBackwardProblem(
        3,
        32,
        (200, 290),
        contexts=(3, 0),
        targets=(60, 280),
        target_group_size=7,
        bias_heads=1,
        dtype="f16",
    ),
    HstuBackwardProblem(2, 32, (150, 260), (300, 300), window=(100, 5), dtype="f16"),
    HstuBackwardProblem(2, 32, (150, 260), (300, 300), intervals=True, bias_heads=1, dtype="f16"),
]


@pytest.mark.parametrize("problem", ORDERED, ids=str)
def test_the_same_bits(
    run_stage: RunStage, monkeypatch: pytest.MonkeyPatch, problem: HstuBackwardProblem
) -> None:
    outputs = []
    for threads in ("1", "2", "16", "2"):
        monkeypatch.setenv("LADDER_THREADS", threads)
        result = run_stage(discover()[NAME].narrowed(ORDERED), problem)
        outputs.append(result.execution.outputs)
    first, *others = outputs
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)
