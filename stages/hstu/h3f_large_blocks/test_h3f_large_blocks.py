"""h3f's claim: the shared memory of the GPU decides how large a block is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuBackwardProblem
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "h3f_large_blocks"


@pytest.mark.parametrize(("arch", "bias_heads", "threads"), [("sm_86", 0, 128), ("sm_90", 2, 256)])
def test_the_shared_memory_decides_how_large_a_block_is(
    run_stage: RunStage, arch: str, bias_heads: int, threads: int
) -> None:
    """At d = 128. On an sm_80, where the other tests run, blocks are small with a bias and large without."""
    problem = HstuBackwardProblem(
        2, 128, (100, 0, 130), (230, 70, 130), targets=(7, 0, 20), bias_heads=bias_heads, dtype="f16"
    )
    result = run_stage(discover()[NAME].narrowed([problem]), problem, arch=arch)
    assert [launch.block for launch in result.execution.launches] == [(threads, 1, 1)] * 2
