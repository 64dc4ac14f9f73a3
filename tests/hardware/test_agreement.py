"""What the emulator counts for the stages against what the H200's counters said: no difference.

``results/h200/counters.csv`` holds what ``results/measure_counters.py`` measured, with at most one block an
SM, where the counters are exact. The emulator runs the same source for the same architecture.
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


def measured() -> list[Any]:
    """Stage, problem and counts of each row of the file."""
    if not MEASURED.exists():
        return [pytest.param("", None, None, id="no-measurements")]
    rows = pd.read_csv(MEASURED)
    counts = nsight.counters(rows)
    parameters = []
    for number, row in rows.iterrows():
        problem = Problem(
            int(row["B"]), int(row["H"]), int(row["N"]), int(row["M"]), int(row["d"]),
            kv_heads=int(row["Hkv"]), dtype=str(row["dtype"]), is_causal=bool(row["causal"]),
        )  # fmt: skip
        name = f"{row['stage']}-{problem}".replace(" ", "-")
        parameters.append(pytest.param(row["stage"], problem, counts.loc[number], id=name))
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
