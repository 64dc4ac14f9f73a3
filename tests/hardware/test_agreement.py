"""What the emulator counts for the stages against what the H200's counters said.

``results/h200/counters.csv`` holds what ``results/measure_counters.py`` measured, with at most one block an
SM, several launches of each problem. The emulator runs the same source for the same architecture.
Instructions and sectors are equal. Wavefronts and conflicts are equal, too, but for lost arbitration: when a
warp's ldmatrix meets another warp's data on its way into the L1, the hardware counts a wavefront and a
conflict more, differently many from launch to launch. It has a counter of its own for these: in each launch
it bounds the difference. Sixteen warps meet often; four or fewer hardly ever, and there a constant bounds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ladder import nsight
from ladder.evaluation import evaluate
from ladder.operations import Problem

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

#: To these the hardware adds lost arbitration.
ARBITRATED = {"wavefronts_ld", "wavefronts_st", "conflicts_ld", "conflicts_st", "conflicts"}
#: With blocks of four warps or fewer the least of several launches never held more of it, out of tens of
#: thousands of wavefronts.
MOST_LOST = 20
FEW_THREADS = 128

#: The columns that name a problem of a stage.
PROBLEM = ["stage", "B", "H", "Hkv", "N", "M", "d", "dtype", "causal"]


def measured() -> list[Any]:
    """Stage, problem, and the counts, lost arbitration and block size of its launches."""
    rows = pd.read_csv(MEASURED)
    counts = pd.concat([rows, nsight.counters(rows)[COMPARED]], axis=1)
    counts["lost"] = counts[nsight.ARBITRATION[0]].astype(int)
    counts["threads"] = counts["launch__block_size"].astype(int)
    parameters = []
    for (stage, *sizes, dtype, causal), launches in counts.groupby(PROBLEM, sort=False):
        b, h, hkv, n, m, d = map(int, sizes)
        problem = Problem(b, h, n, m, d, kv_heads=hkv, dtype=dtype, is_causal=bool(causal))
        name = f"{stage}-{problem}".replace(" ", "-")
        parameters.append(
            pytest.param(stage, problem, launches[[*COMPARED, "lost", "threads"]], id=name)
        )
    return parameters


@pytest.mark.parametrize(("stage", "problem", "launches"), measured())
def test_emulator_counts_what_the_gpu_counted(stage: str, problem: Problem, launches: pd.DataFrame) -> None:
    emulated = evaluate(stage, problem, backend="emulator", arch="sm_90")
    assert emulated.passed, emulated.describe()
    excess = launches[COMPARED] - [emulated.row[name] for name in COMPARED]
    exact = [name for name in COMPARED if name not in ARBITRATED]
    assert not excess[exact].any(axis=None), excess[exact]
    for name in ARBITRATED:
        assert excess[name].between(0, launches["lost"]).all(), (name, excess[name], launches["lost"])
        if launches["threads"].max() <= FEW_THREADS:
            assert excess[name].min() <= MOST_LOST, (name, excess[name])


def test_measured_with_at_most_one_block_an_sm() -> None:
    rows = pd.read_csv(MEASURED)
    blocks = rows["grid"].map(lambda text: pd.Series(text.strip("()").split(", ")).astype(int).prod())
    assert (blocks <= rows["sm_count"]).all()
    assert {"v1_minimal", "v2_warp_mma", "v3_swizzle"} <= set(rows["stage"])
