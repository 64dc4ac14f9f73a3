"""b5e's claims: lse and delta are loaded before products are issued, and no count changes at d = 128;
d = 64 has 128 queries per step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME, BEFORE = "b5e_loads_ahead", "b5d"
PROBLEM = BackwardProblem(1, 2, 320, 200, 128)
COUNTS = (
    "wgmma_instructions",
    "wavefronts_gmma",
    "wavefronts_ld",
    "wavefronts_st",
    "tma_load_instructions",
    "tma_store_instructions",
    "global_sectors_ld",
    "global_sectors_st",
    "conflicts",
)


def loads_after_a_product(result: Evaluation) -> int:
    """The loads of shared memory between a wait for S or dP, while another product is in flight, and the next
    product or wait, in the kernel of the gradients.
    """
    [launch] = [one for one in result.execution.launches if "differentiate" in one.kernel]
    found, is_counted = 0, False
    for instruction in launch.instructions()["ptx"]:
        if instruction.startswith("wgmma."):
            is_counted = instruction.startswith("wgmma.wait_group") and instruction.rstrip(";").endswith(" 1")
        elif is_counted and instruction.startswith("ld.shared"):
            found += 1
    return found


def test_loads_stand_before_products(run_stage: RunStage) -> None:
    """A load has two values. b5d loads lse of 48 queries there, 6, and delta of 80, 10 in the loop and 10
    behind it. b5e loads lse of the 48 queries of the next step, before S, and of the other 32 of this one.
    """
    before, now = (run_stage(stage, PROBLEM) for stage in (BEFORE, NAME))
    assert (loads_after_a_product(before), loads_after_a_product(now)) == (26, 10)


def test_the_same_counts(run_stage: RunStage) -> None:
    before, now = (run_stage(stage, PROBLEM).row for stage in (BEFORE, NAME))
    assert {name: now[name] for name in COUNTS} == {name: before[name] for name in COUNTS}


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_lse_of_both_parts(run_stage: RunStage, steps: int) -> None:
    """The parts are 48 and 32 queries of a tile."""
    run_stage(NAME, BackwardProblem(1, 1, 80 * steps - 31, 70, 128, inputs="large"))


def test_wavefronts_of_operands_per_step_at_64(run_stage: RunStage) -> None:
    queries, tiles = 384, 2 * -(-200 // 128)  # heads times tiles of keys
    now = run_stage(NAME, BackwardProblem(1, 2, queries, 200, 64)).row
    assert now["wavefronts_gmma"] == tiles * queries // 128 * 1792
    assert (now["conflicts"], now["conflicts_gmma"]) == (0, 0)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_of_all_turns_at_64(run_stage: RunStage, steps: int) -> None:
    """The last tile has 127 queries, and the last block 1 key."""
    run_stage(NAME, BackwardProblem(1, 1, 128 * steps - 1, 129, 64, dtype="bf16", is_causal=True))


def test_all_parts_of_a_tile_at_64(run_stage: RunStage) -> None:
    """The exponentials of 32 and 96 queries, and the columns of dQ^T of both consumers."""
    run_stage(NAME, BackwardProblem(1, 1, 100, 70, 64, inputs="large"))
