"""h3e's claims: at d = 128 fewer fragments for the same products, and the shared memory decides how large a
block is; elsewhere h3c's counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuBackwardProblem
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME = "h3e_pairs"


@pytest.mark.parametrize(("d", "before", "now"), [(32, 128, 128), (64, 256, 256), (128, 768, 528)])
def test_fragments(run_stage: RunStage, d: int, before: int, now: int) -> None:
    """What warps load for 64 queries and 128 keys, in KB, with the small blocks of an sm_86."""
    problem = HstuBackwardProblem(1, d, (64,), (128,), window=(-1, -1), dtype="f16")
    rows = [run_stage(stage, problem, arch="sm_86").row for stage in ("h3c", NAME)]
    assert [row["ldmatrix_instructions"] * 512 // 1024 for row in rows] == [before, now]
    assert rows[0]["mma_instructions"] == rows[1]["mma_instructions"]
    assert rows[1]["conflicts"] == 0


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
