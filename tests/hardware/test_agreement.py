"""Compares the emulator's counts for the stages with an H200's counters.

``results/h200/counters.csv`` holds the measurements of ``results/measure_counters.py``, with at most one
block per SM and several launches of each problem. The emulator runs the same source for the same
architecture. Instructions and sectors are equal, and what wgmma reads. So are other wavefronts and
conflicts, except for lost arbitration: when a warp's ldmatrix meets another warp's data on its way into the
L1, the hardware counts an extra wavefront and conflict. Their number varies between launches; a separate
counter bounds it. With sixteen warps this is frequent; with four or fewer it hardly ever happens, and a
constant bounds it, too. Stores also meet TMA, which reads the tiles that it stores a wavefront at a time:
v11's, while others write theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ladder import nsight
from ladder.evaluation import evaluate
from ladder.operations import Problem
from ladder.stages import discover

MEASURED = Path(__file__).parents[2] / "results" / "h200" / "counters.csv"

#: The columns known to both sides; no stage has shared atomics, so their count is 0 on both.
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
    "wgmma_instructions",
    "wavefronts_gmma",
    "conflicts_gmma",
    "tma_load_instructions",
    "tma_store_instructions",
]

#: The columns that, on hardware, include lost arbitration.
ARBITRATED = {"wavefronts_ld", "wavefronts_st", "conflicts_ld", "conflicts_st", "conflicts"}
#: With blocks of at most four warps, the minimum of several launches never had more of it, in tens of
#: thousands of wavefronts.
MOST_LOST = 20
FEW_THREADS = 128

#: What stores may lose to a TMA store is not counted apart; it is at most what TMA reads meanwhile.
MET_BY_TMA = {"wavefronts_st", "conflicts_st", "conflicts"}
TMA_STORED = "tma_sectors_st"
SECTORS_A_WAVEFRONT = 4

#: The columns that identify a stage and problem.
PROBLEM = ["stage", "B", "H", "Hkv", "N", "M", "d", "dtype", "causal"]


def measured() -> list[Any]:
    """For each stage and problem: minimum counts, maximum lost arbitration and block size of its launches."""
    rows = pd.read_csv(MEASURED)
    counts = pd.concat([rows, nsight.counters(rows)[[*COMPARED, TMA_STORED]]], axis=1)
    parameters = []
    for (stage, *sizes, dtype, causal), launches in counts.groupby(PROBLEM, sort=False):
        b, h, hkv, n, m, d = map(int, sizes)
        problem = Problem(b, h, n, m, d, kv_heads=hkv, dtype=dtype, is_causal=bool(causal))
        name = f"{stage}-{problem}".replace(" ", "-")
        # ncu replays a launch for each few counters, so lost arbitration may come from another replay.
        lost = int(launches[nsight.ARBITRATION[0]].max())
        if launches["launch__block_size"].max() <= FEW_THREADS:
            lost = min(lost, MOST_LOST)
        parameters.append(
            pytest.param(stage, problem, launches[[*COMPARED, TMA_STORED]].min(), lost, id=name)
        )
    return parameters


@pytest.mark.parametrize(("stage", "problem", "counted", "lost"), measured())
def test_emulator_counts_what_the_gpu_counted(
    stage: str, problem: Problem, counted: pd.Series, lost: int
) -> None:
    arch = "sm_90" + ("a" if discover()[stage].only_arch else "")
    emulated = evaluate(stage, problem, backend="emulator", arch=arch)
    assert emulated.passed, emulated.describe()
    known = [name for name in COMPARED if pd.notna(counted[name])]
    assert len(known) == len(COMPARED) or arch == "sm_90"
    excess = {name: int(counted[name]) - (emulated.row[name]) for name in known}
    allowed = {name: lost if name in ARBITRATED else 0 for name in known}
    if TMA_STORED in counted.dropna():
        for name in MET_BY_TMA:
            allowed[name] += int(counted[TMA_STORED]) // SECTORS_A_WAVEFRONT
    wrong = {name: excess[name] for name in known if not 0 <= excess[name] <= allowed[name]}
    assert not wrong, f"the H200 counted more by {wrong}; lost arbitration: {lost}"


def test_measured_with_at_most_one_block_an_sm() -> None:
    rows = pd.read_csv(MEASURED)
    blocks = rows["grid"].map(lambda text: pd.Series(text.strip("()").split(", ")).astype(int).prod())
    assert (blocks <= rows["sm_count"]).all()
    assert {"v1_minimal", "v2_warp_mma", "v3_swizzle"} <= set(rows["stage"])
