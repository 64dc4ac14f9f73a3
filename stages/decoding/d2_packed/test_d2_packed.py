"""d2's claims: keys and values are read once per group, not a sector more; products serve all its heads."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ladder.operations import DecodingProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "d2_packed"
SECTOR = 32


def other_sectors(problem: DecodingProblem, warps: int) -> int:
    """What is read besides keys and values, with one split: each warp reads its sequence's length, a sector,
    and its rows of Q, half a sector at a time.
    """
    of_q = problem.batch * problem.heads * problem.q_len * problem.head_dim * 2 // SECTOR
    return problem.batch * problem.num_kv_heads * warps + warps * 2 * of_q


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "q_len"), [(8, 2, 1), (16, 1, 1), (4, 4, 1), (8, 2, 4), (16, 2, 2)]
)
def test_keys_and_values_are_read_once(
    run_stage: RunStage, heads: int, kv_heads: int, q_len: int, d: int
) -> None:
    lengths = (200, 77)
    problem = DecodingProblem(
        2, heads, q_len, 200, d, kv_heads=kv_heads, lengths=lengths, num_splits=1, is_causal=True
    )
    row = run_stage(NAME, problem).row
    warps = 2 if d == 256 else 4
    needed = problem.cache_bytes // SECTOR
    assert needed == 2 * sum(lengths) * kv_heads * d * 2 // SECTOR
    assert row["global_sectors_ld"] == needed + other_sectors(problem, warps)
    assert row["conflicts"] == 0


def test_a_group_costs_what_a_head_costs(run_stage: RunStage) -> None:
    """The 8 heads of a group take the products of one head in d1."""
    problem = DecodingProblem(1, 16, 1, 512, 128, kv_heads=2, num_splits=1)
    before, after = (run_stage(name, problem).row for name in ("d1", NAME))
    for column in ("mma_instructions", "ldmatrix_instructions"):
        assert before[column] == 8 * after[column] > 0


@pytest.mark.parametrize(("rows", "tiles"), [(16, 1), (17, 1), (32, 1), (33, 2)])
def test_a_tile_holds_up_to_32_rows(run_stage: RunStage, rows: int, tiles: int) -> None:
    """One more row than a tile has takes another block, which reads the keys again."""
    found = run_stage(NAME, DecodingProblem(1, rows, 1, 64, 64, kv_heads=1, num_splits=1))
    assert found.execution.launches[0].grid == (1, tiles, 1)


def test_nothing_is_spilled(spilled_bytes: Callable[..., list[int]]) -> None:
    assert set(spilled_bytes(NAME)) == {0}


@pytest.mark.parametrize("stage", [NAME, "d3", "d4", pytest.param("d5", marks=pytest.mark.full)])
def test_o_stays_in_registers(ptxas_report: Callable[..., str], stage: str) -> None:
    """An array that is indexed by a loop that is not unrolled is in local memory. ptxas counts that as stack
    frame, not as spill: with tiles of 32 rows O would take 512 bytes per thread at d = 128.
    """
    frames = [int(size) for size in re.findall(r"(\d+) bytes stack frame", ptxas_report(stage))]
    assert frames and max(frames) < 256
