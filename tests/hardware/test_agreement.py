"""What the emulator counts for the stages against what the H200's counters said: no difference.

``results/h200/counters.csv`` holds what ``results/measure_counters.py`` measured, with at most one block an
SM, several launches of each problem. Lost arbitration between clients of the L1 only ever adds to the
hardware's counters, so the least of the launches is compared. The emulator runs the same source for the same
architecture.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ladder import nsight
from ladder.comparison import evaluate
from ladder.problem import Problem

MEASURED = Path(__file__).parents[2] / "results" / "h200" / "counters.csv"

#: The columns that both sides know; no stage has shared atomics, so theirs is 0 on both.
COMPARED = [
    "shared_load_instructions",
    "shared_store_instructions",
    "ldmatrix_instructions",
    "wavefronts_ld",
    "wavefronts_st",
    "conflicts_ld",
    "conflicts_st",
    "conflicts_atom",
    "conflicts",
    "mma_instructions",
    "global_sectors_ld",
    "global_sectors_st",
]

#: The columns that name a problem of a stage.
PROBLEM = ["stage", "B", "H", "Hkv", "N", "M", "d", "dtype", "causal"]


def measured() -> list[Any]:
    """Stage, problem and counts of each problem of the file."""
    if not MEASURED.exists():
        return [pytest.param("", None, None, id="no-measurements")]
    rows = pd.read_csv(MEASURED)
    counts = pd.concat([rows, nsight.counters(rows)[COMPARED]], axis=1)
    parameters = []
    for (stage, *sizes, dtype, causal), launches in counts.groupby(PROBLEM, sort=False):
        b, h, hkv, n, m, d = map(int, sizes)
        problem = Problem(b, h, n, m, d, kv_heads=hkv, dtype=dtype, is_causal=bool(causal))
        name = f"{stage}-{problem}".replace(" ", "-")
        parameters.append(pytest.param(stage, problem, launches[COMPARED].min(), id=name))
    return parameters


@pytest.mark.parametrize(("stage", "problem", "counted"), measured())
def test_emulator_counts_what_the_gpu_counted(
    stage: str, problem: Problem | None, counted: pd.Series
) -> None:
    assert problem is not None, f"{MEASURED} is missing; results/measure_counters.py makes it"
    emulated = evaluate(stage, problem, backend="emulator", arch="sm_90")
    assert emulated.passed, emulated.describe()
    hardware = {name: None if pd.isna(counted[name]) else int(counted[name]) for name in COMPARED}
    assert {name: emulated.row[name] for name in COMPARED} == hardware


def test_measured_with_at_most_one_block_an_sm() -> None:
    if MEASURED.exists():
        rows = pd.read_csv(MEASURED)
        blocks = rows["grid"].map(lambda text: pd.Series(text.strip("()").split(", ")).astype(int).prod())
        assert (blocks <= rows["sm_count"]).all()
        assert {"v1_minimal", "v2_warp_mma", "v3_swizzle"} <= set(rows["stage"])
