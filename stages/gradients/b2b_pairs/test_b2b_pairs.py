"""b2b's claims: b2's products with fewer fragments, and the large form where shared memory allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation
from ladder.stages import discover

RunStage = Callable[..., Evaluation]

NAME, BEFORE = "b2b_pairs", "b2"


def fragments_in_kb(result: Evaluation) -> int:
    """What warps load as fragments."""
    return int(result.row["ldmatrix_instructions"]) * 512 // 1024


@pytest.mark.parametrize(("d", "before", "now"), [(32, 208, 160), (64, 256, 208), (128, 768, 464)])
def test_each_fragment_serves_twice(run_stage: RunStage, d: int, before: int, now: int) -> None:
    """Of 64 queries and 128 keys."""
    problem = BackwardProblem(1, 1, 64, 128, d)
    results = [run_stage(stage, problem) for stage in (BEFORE, NAME)]
    assert [fragments_in_kb(result) for result in results] == [before, now]
    assert results[0].row["mma_instructions"] == results[1].row["mma_instructions"]


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


def test_larger_blocks_load_fewer_fragments(run_stage: RunStage) -> None:
    """Of 64 queries and 128 keys at d = 128, in the small and in the large form."""
    problem = BackwardProblem(1, 1, 64, 128, 128)
    of_problem = discover()[NAME].narrowed([problem])
    small, large = run_stage(of_problem, problem, arch="sm_86"), run_stage(NAME, problem)
    assert (fragments_in_kb(small), fragments_in_kb(large)) == (528, 464)
