"""Compares the emulator's counts for the stages with the counters of an H200 and an H100.

``results/h200/counters.csv`` and ``results/h100/counters.csv`` hold what ``tools.measure.measure_counters``
measured, with at most one block per SM. The emulator runs the same source for the same architecture.
Instructions and sectors are equal, and what wgmma reads. So are other wavefronts and conflicts, except for

- lost arbitration: when a warp's ldmatrix meets another warp's data on its way into the L1, the hardware
  counts an extra wavefront and conflict. Their number varies between launches; a separate counter bounds it.
  With sixteen warps this is frequent; with four or fewer it hardly ever happens once the minimum of several
  launches is taken, and a constant bounds it, too.
- stores that meet TMA, which reads the tiles that it stores a wavefront at a time: v11's, while others write
  theirs. While TMA writes or wgmma reads tiles others wait as well: v12's loads of item numbers, b4's and
  b5's of lse and delta, h6's and h8's loads of what the producer says, and h6's stores of O. That adds
  wavefronts, not conflicts.
- sectors of polls: in b3 a block that waits for its turn reads the turn until it comes, on an H200 as on the
  emulator as often as it takes.
- loads that ptxas moves: in h1, in h8, and in h3b without a bias, it reads the keys' offsets only after the
  exit of blocks without rows, so that the emulator counts two sectors more for each of their warps.
- h3's bias, which cp.async brings from rows that begin in the middle of a sector: the emulator counts up to
  4% more sectors.
- h4 with few queries: the emulator counts 48 sectors more, 0.4%; the reason is not known.
- shared loads that ptxas divides or drops. In h7 a cut tile needs two of a work item's four words:
  two loads of a word, with as many wavefronts, replace the one of four words that the emulator counts. In h8
  a consumer reads the visit of its first tile twice: ptxas drops the second time, which the emulator counts
  as two loads.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from nightly import SLOW_TO_COMPILE, whole_rungs
from rungs import named

from ladder.counts import line_table, nsight
from ladder.operations import DEFAULT_OPERATION, BackwardProblem, get_operation
from ladder.run.evaluation import evaluate
from ladder.stages import discover, of_today, root

H200, H100 = (Path(__file__).parents[2] / "results" / name for name in ("h200", "h100"))
LADDER = discover()

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
MOST_LOST = 42
FEW_THREADS = 128
SEVERAL = 3

#: What stores may lose to a TMA store is not counted apart; it is at most what TMA reads meanwhile. What
#: waits for TMA or wgmma loses at most what TMA writes, a wavefront for two sectors or more, and wgmma reads.
MET_BY_TMA = {"wavefronts_st", "conflicts_st", "conflicts"}
WAITING = {
    **dict.fromkeys((named("v12c"), named("b4g")), ("wavefronts_ld",)),
    **dict.fromkeys((named("h6"), named("h6b"), named("h7")), ("wavefronts_ld", "wavefronts_st")),
    **dict.fromkeys((named("b5f"), named("b5g"), named("h8")), ("wavefronts_ld",)),
}
SECTORS_A_WAVEFRONT = 4
TRAFFIC = ["tma_sectors_ld", "tma_sectors_st"]

#: A block that waits for its turn polls global memory.
POLLS = {named("b3"), named("b6")}
#: The rows of a block of h1, queries, and of h3b and h8, keys, and its warps, by head dimension. If a
#: sequence has no rows for it and there is no bias, each of its warps reads SECTORS_OF_A_WARP fewer.
BLOCKS = {
    named("h1"): dict.fromkeys((64, 128), (128, 4)),
    named("h3e"): {64: (128, 4), 128: (128, 8)},
    named("h8"): dict.fromkeys((64, 128), (128, 12)),
}
SECTORS_OF_A_WARP = 2
#: By how much of its sectors h3 may read fewer.
FEWER_SECTORS = 0.04
#: How many fewer h4 reads with so few queries.
FEW_QUERIES, SECTORS_OF_FEW_QUERIES = 16, 48
#: The load of a work item that ptxas divides into two, in h7.
DIVIDED = "const WorkItem item = smem.items[q_turn.buffer];"
#: In h8 ptxas drops so many loads of each warp of a block with keys, of its consumers alone.
DROPPED, CONSUMERS = 2, 8

REDS = "smsp__sass_inst_executed_op_global_red.sum"

#: How many sums of dQ a lane adds at a time.
FLOATS = [(named("b2b"), 1), (named("b3"), 1), (named("b4g"), 4)]


def files() -> list[Path]:
    return [H200 / "counters.csv", H100 / "counters.csv"]


@cache
def rows_of(file: Path) -> pd.DataFrame:
    rows = of_today(pd.read_csv(file, low_memory=False), "stage")
    return pd.concat([rows, nsight.counters(rows)[[*COMPARED, *TRAFFIC]]], axis=1)


def problem_of(stage: str, text: str) -> Any:
    operation = get_operation(LADDER[stage].computes)
    return type(operation.calibration_problems[0]).from_text(text)


def measured() -> list[Any]:
    """For each stage and problem: minimum counts, and the most lost arbitration of its launches.

    A problem in another dtype with the same counts says nothing new, but takes a build: it is left to
    ``-m full``. So are the rungs for sm_80 of the H100, which nothing else builds for sm_90. Rungs that
    are not tested whole are left to the nightly run.
    """
    whole = whole_rungs()
    parameters: list[Any] = []
    seen: set[object] = set()
    for file in files():
        for key, launches in rows_of(file).groupby(["stage", "problem"], sort=False):
            stage, text = map(str, key)
            problem = problem_of(stage, text)
            # ncu replays a launch for each few counters, so lost arbitration may come from another replay.
            lost = int(launches[nsight.ARBITRATION[0]].max())
            if launches["launch__block_size"].max() <= FEW_THREADS and len(launches) >= SEVERAL:
                lost = min(lost, MOST_LOST)
            name = f"{stage}-{problem}".replace(" ", "-")
            counted = launches[[*COMPARED, *TRAFFIC]].min()
            exact = counted[[column for column in COMPARED if column not in ARBITRATED]]
            counts = (stage, replace(problem, dtype=None), *exact.fillna(-1))
            is_attention = problem.operation == DEFAULT_OPERATION
            other_dim = problem.head_dim != 64 and (not is_attention or LADDER[stage].only_arch)
            heavy = other_dim or (file.parent == H100 and not LADDER[stage].only_arch)
            marks = [pytest.mark.full] if heavy or counts in seen else []
            if not marks:
                usual_problems(stage).append(problem)
            if stage not in whole:
                marks.append(pytest.mark.nightly)
            seen.add(counts)
            parameters.append(pytest.param(stage, problem, counted, lost, id=name, marks=marks))
    return parameters


@cache
def usual_problems(stage: str) -> list[Any]:
    """Those of a stage that are not left to ``-m full``: its build has the kernels of all of them."""
    return []


def tiles_of(stage: str, problem: Any) -> list[int]:
    """The blocks with rows of each sequence."""
    lengths = problem.q_lens if stage == named("h1") else problem.kv_lens or problem.q_lens
    rows, _ = BLOCKS[stage][problem.head_dim]
    return [-(-length // rows) for length in lengths]


def warps_without_rows(stage: str, problem: Any) -> int:
    _, warps = BLOCKS[stage][problem.head_dim]
    tiles = tiles_of(stage, problem)
    return int(warps * problem.heads * sum(max(tiles) - count for count in tiles))


def changed_loads(stage: str, problem: Any, execution: Any) -> dict[str, int]:
    """How many more shared loads and wavefronts the machine code has, because ptxas divides or drops some."""
    if stage == named("h8"):
        fewer = DROPPED * CONSUMERS * int(problem.heads) * sum(tiles_of(stage, problem))
        return {"shared_load_instructions": -fewer, "wavefronts_ld": -fewer}
    kernel = LADDER[stage].kernel
    lines = [i for i, line in enumerate(kernel.read_text().splitlines(), start=1) if line.strip() == DIVIDED]
    table = line_table(execution.launches)
    inside = (table["file"].map(str) == str(kernel)) & table["line"].isin(lines)
    return {"shared_load_instructions": int(table[inside]["shared_load_instructions"].sum())}


def allowed_excess(stage: str, problem: Any, counted: pd.Series, lost: int) -> dict[str, tuple[int, int]]:
    """By how much the hardware's count may differ from the emulator's: from, to."""
    least = dict.fromkeys(COMPARED, 0)
    most = {name: lost if name in ARBITRATED else 0 for name in COMPARED}
    if pd.notna(counted["tma_sectors_st"]):
        for name in MET_BY_TMA:
            most[name] += int(counted["tma_sectors_st"]) // SECTORS_A_WAVEFRONT
    for name in WAITING.get(stage, ()):
        most[name] += int(counted["tma_sectors_ld"]) // 2 + int(counted["wavefronts_gmma"])
    if stage in BLOCKS and not problem.bias_heads:
        fewer = SECTORS_OF_A_WARP * warps_without_rows(stage, problem)
        least["global_sectors_ld"] = most["global_sectors_ld"] = -fewer
    if stage == named("h3"):
        least["global_sectors_ld"] = -int(FEWER_SECTORS * counted["global_sectors_ld"])
    if stage == named("h4") and max(problem.q_lens) <= FEW_QUERIES:
        least["global_sectors_ld"] = most["global_sectors_ld"] = -SECTORS_OF_FEW_QUERIES
    return {name: (least[name], most[name]) for name in COMPARED}


@pytest.mark.parametrize(("stage", "problem", "counted", "lost"), measured())
def test_emulator_counts_what_the_gpu_counted(
    stage: str, problem: Any, counted: pd.Series, lost: int
) -> None:
    arch = "sm_90" + ("a" if LADDER[stage].only_arch else "")
    usual = usual_problems(stage)
    built = LADDER[stage]
    # The default is built for other tests, too, except rungs that are slow to compile.
    if problem in usual and (arch != built.default_arch or built.computes in SLOW_TO_COMPILE):
        built = built.narrowed(usual)
    emulated = evaluate(built, problem, backend="emulator", arch=arch)
    assert emulated.passed, emulated.text
    known = [name for name in COMPARED if pd.notna(counted[name])]
    assert len(known) == len(COMPARED) or arch == "sm_90"
    if stage in POLLS:
        known.remove("global_sectors_ld")
    allowed = allowed_excess(stage, problem, counted, lost)
    changed = changed_loads(stage, problem, emulated.execution)
    excess = {name: int(counted[name]) - emulated.row[name] - changed.get(name, 0) for name in known}
    wrong = {name: excess[name] for name in known if not allowed[name][0] <= excess[name] <= allowed[name][1]}
    assert not wrong, f"the GPU counted more by {wrong}; lost arbitration: {lost}"


def test_measured_with_at_most_one_block_an_sm() -> None:
    stages = set()
    for file in files():
        rows = rows_of(file)
        blocks = rows["grid"].map(lambda text: pd.Series(text.strip("()").split(", ")).astype(int).prod())
        assert (blocks <= rows["sm_count"]).all()
        stages |= set(rows["stage"])
    assert stages <= {stage.name for stage in LADDER if stage.name[0] in "vbhd"}


TILE = 128  # rows of a block of keys, and of what is padded to whole tiles of queries


def reds_by_formula(problem: BackwardProblem, floats: int) -> int:
    """Instructions that add dQ: each tile of it once for each block of keys that its rows see, in reds of 32
    lanes with so many ``floats`` each.
    """
    queries, keys = -(-problem.q_len // TILE), -(-problem.kv_len // TILE)
    seen = sum(not problem.is_causal or key <= query for query in range(queries) for key in range(keys))
    return problem.batch * problem.heads * seen * TILE * problem.head_dim // (32 * floats)


@pytest.mark.parametrize(("stage", "floats"), FLOATS)
def test_the_gpu_adds_dq_as_often_as_the_formula_says(stage: str, floats: int) -> None:
    rows = rows_of(H200 / "counters.csv").set_index("stage").loc[stage]
    assert len(rows) > 10
    expected = [reds_by_formula(problem_of(stage, text), floats) for text in rows["problem"]]
    assert rows[REDS].tolist() == expected


@pytest.mark.parametrize(
    ("stage", "floats"),
    [
        pytest.param(stage, floats, marks=[] if stage in whole_rungs() else [pytest.mark.nightly])
        for stage, floats in FLOATS
    ],
)
@pytest.mark.parametrize(
    "problem",
    [BackwardProblem(1, 2, 256, 256, 64, is_causal=True), BackwardProblem(1, 3, 100, 77, 128)],
    ids=str,
)
def test_the_emulator_adds_dq_as_often(stage: str, floats: int, problem: BackwardProblem) -> None:
    execution = evaluate(stage, problem, backend="emulator").execution
    assert execution is not None
    table = line_table(execution.launches)
    inside = table["file"].map(str).str.endswith("tiles/ptx.h") & table["line"].isin(lines_of_reds())
    assert table[inside]["executed"].sum() == reds_by_formula(problem, floats)


def lines_of_reds() -> set[int]:
    """The lines of the functions in tiles/ptx.h that issue a red."""
    text = (root() / "include" / "tiles" / "ptx.h").read_text().splitlines()
    starts = [number for number, line in enumerate(text, start=1) if "void atomic_add(float *" in line]
    assert len(starts) == 2
    return {start + i for start in starts for i in range(text[start:].index("}") + 1)}
