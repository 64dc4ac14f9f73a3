"""b5's claims: dV is in flight while dS is computed, and only the third buffer of Q is counted beside b4g."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

PROBLEM = BackwardProblem(1, 4, 150, 300, 128, kv_heads=2, is_causal=True)
REGISTER = re.compile(r"%r\d+")
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
    assert pending_at_ds(run_stage("b4g", PROBLEM)) == 0
    assert pending_at_ds(run_stage("b5_early_dv", PROBLEM)) == 1


def uses_of_operands_in_flight(result: Evaluation) -> list[str]:
    """The instructions that access registers of an operand A before its group has been waited for."""
    found: list[str] = []
    for launch in result.execution.launches:
        groups: list[set[str]] = [set()]  # the last one has not been committed
        for instruction in launch.instructions()["ptx"]:
            if instruction.startswith("wgmma.mma_async"):
                groups[-1].update(operand_a(instruction))
            elif instruction.startswith("wgmma.commit_group"):
                groups.append(set())
            elif instruction.startswith("wgmma.wait_group"):
                pending = int(instruction.rstrip(";").split()[-1])
                groups = groups[-1 - pending :]
            elif set().union(*groups) & set(REGISTER.findall(instruction)):
                found.append(instruction)
    return found


def operand_a(wgmma: str) -> list[str]:
    _, *braces = re.findall(r"{(.*?)}", wgmma)
    return REGISTER.findall(braces[0]) if braces else []


def test_ds_accesses_no_operand_of_dv(run_stage: RunStage) -> None:
    result = run_stage("b5_early_dv", PROBLEM)
    kernels = [
        instruction for launch in result.execution.launches for instruction in launch.instructions()["ptx"]
    ]
    assert any(operand_a(one) for one in kernels if one.startswith("wgmma.mma_async"))
    assert uses_of_operands_in_flight(result) == []


def test_one_more_buffer_and_the_same_counts(run_stage: RunStage) -> None:
    before, now = (run_stage(stage, PROBLEM) for stage in ("b4g", "b5_early_dv"))
    before_bytes, bytes_now = (
        max(launch.dynamic_smem_bytes for launch in result.execution.launches) for result in (before, now)
    )
    assert (before_bytes, bytes_now) == (169_984, 186_368)
    assert {name: now.row[name] for name in COUNTS} == {name: before.row[name] for name in COUNTS}


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7])
def test_both_rings_wrap(run_stage: RunStage, steps: int) -> None:
    """One has three buffers, the other two."""
    run_stage("b5_early_dv", BackwardProblem(1, 1, 64 * steps, 128, 128, dtype="bf16"))


@pytest.mark.parametrize("inputs", ["negative", "large", "dominant"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_p_in_16_bits_is_exact_enough_for_ds(run_stage: RunStage, dtype: str, inputs: str) -> None:
    """Out-of-range keys do not contribute, even if lse is far below 0."""
    run_stage(
        "b5_early_dv", BackwardProblem(1, 1, 70, 33, 128, dtype=dtype, inputs=inputs, lse_gradient=True)
    )
