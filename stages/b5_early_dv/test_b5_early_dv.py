"""b5's claims: dV is in flight while dS is computed, and nothing is counted that b4g does not count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.evaluation import Evaluation
from ladder.operations import BackwardProblem

RunStage = Callable[..., Evaluation]

PROBLEM = BackwardProblem(1, 4, 150, 300, 128, kv_heads=2, is_causal=True)
COUNTS = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "wavefronts_ld",
    "wavefronts_st",
    "tma_load_instructions",
    "tma_store_instructions",
    "global_sectors_ld",
    "global_sectors_st",
)


def pending_at_ds(result: Evaluation) -> int:
    """The groups of products that may be in flight where dS^T is first stored."""
    for launch in result.execution.launches:
        pending = 0
        for instruction in launch.instructions()["ptx"]:
            if instruction.startswith("wgmma.wait_group"):
                pending = int(instruction.rstrip(";").split()[-1])
            elif instruction.startswith("stmatrix") and "differentiate" in launch.kernel:
                return pending
    raise AssertionError("no kernel stores dS")


def test_dv_is_in_flight_under_ds(run_stage: RunStage) -> None:
    assert pending_at_ds(run_stage("b4g_wide_adds", PROBLEM)) == 0
    assert pending_at_ds(run_stage("b5_early_dv", PROBLEM)) == 1


def test_the_same_counts(run_stage: RunStage) -> None:
    before, now = (run_stage(stage, PROBLEM).row for stage in ("b4g_wide_adds", "b5_early_dv"))
    assert {name: now[name] for name in COUNTS} == {name: before[name] for name in COUNTS}


@pytest.mark.parametrize("inputs", ["negative", "large", "dominant"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_p_in_16_bits_is_exact_enough_for_ds(run_stage: RunStage, dtype: str, inputs: str) -> None:
    """And keys past the end have no part, where lse is far below 0."""
    run_stage(
        "b5_early_dv", BackwardProblem(1, 1, 70, 33, 128, dtype=dtype, inputs=inputs, lse_gradient=True)
    )
