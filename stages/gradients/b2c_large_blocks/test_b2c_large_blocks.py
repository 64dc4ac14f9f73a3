"""b2c's claims: the large form where shared memory allows, with fewer fragments; the small one elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME, BEFORE = "b2c_large_blocks", "b2b_pairs"


@pytest.mark.parametrize(("d", "before", "now"), [(64, 208, 208), (128, 528, 464)])
def test_fewer_fragments_at_128(run_stage: RunStage, d: int, before: int, now: int) -> None:
    """Of 64 queries and 128 keys, in KB: what warps load as fragments."""
    problem = BackwardProblem(1, 1, 64, 128, d)
    rows = [run_stage(stage, problem).row for stage in (BEFORE, NAME)]
    assert [row["ldmatrix_instructions"] * 512 // 1024 for row in rows] == [before, now]
    assert rows[0]["mma_instructions"] == rows[1]["mma_instructions"]


@pytest.mark.parametrize("d", [32, 64, 128])
@pytest.mark.parametrize("dtype", ["f16", pytest.param("bf16", marks=pytest.mark.full)])
def test_the_small_form(run_stage: RunStage, d: int, dtype: str) -> None:
    """Where a block has 99 KB of shared memory. The element type makes no difference to it."""
    problem = BackwardProblem(1, 2, 100, 150, d, kv_heads=1, dtype=dtype, is_causal=True)
    of_dtype = discover()[NAME].narrowed([replace(problem, head_dim=each) for each in (32, 64, 128)])
    small, large = run_stage(of_dtype, problem, arch="sm_86"), run_stage(NAME, problem)
    assert small.row["conflicts"] == 0
    smem_bytes = [max(one.smem_bytes for one in result.execution.launches) for result in (small, large)]
    assert smem_bytes[0] <= 99 * 1024
    assert d != 128 or smem_bytes[1] > 99 * 1024
