#!/usr/bin/env python3
"""Draws the README's pictures from measurements.

    python -m tools.measure.pictures [--check]

Needs matplotlib. Each picture in docs/pictures/ contains a digest of the data that it was drawn from. With
``--check``, nothing is drawn, and the exit code is 1 if any picture was drawn from other data.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ladder.counts import nsight
from ladder.operations import DEFAULT_PROBLEM, Problem
from ladder.run.evaluation import compare
from ladder.stages import discover, of_today
from tools.measure import measure_distributed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
H200 = ROOT / "results" / "h200"
H100 = ROOT / "results" / "h100"
PICTURES = ROOT / "docs" / "pictures"

#: The most bytes that a wavefront of shared memory delivers.
_WAVEFRONT_BYTES = 128

_SPEED_PROBLEMS = [{"N": 4096, "d": d, "dtype": "bf16", "causal": False} for d in (64, 128)]
#: The units that may bound a rung, with their names in the picture.
_UNITS = {
    "tensor": "tensor cores",
    "xu": "exp unit",
    "shared": "shared memory",
    "issue": "issue slots",
    "l2": "L2",
    "dram": "DRAM",
}
#: The columns of data that have the names of rungs.
_NAMES = frozenset({"stage", "contender"})
#: The problem that all rungs were measured on, each in its own dtype.
_ROOFLINE_PROBLEM = Problem(4, 16, 1024, 1024, 64)


@dataclass(frozen=True)
class Picture:
    """A picture: the function that makes its data, and the one that draws it."""

    data: Callable[[], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]


def ceiling(unit: str) -> float:
    """The peak rate of this unit of the GPU, per second."""
    return float(pd.read_csv(H200 / "ceilings.csv").set_index("unit")["per_second"][unit])


def speeds() -> pd.DataFrame:
    """The data of the picture of speeds: all contenders with their problems, and the ceiling of mma.sync."""
    columns = ["gpu", "contender", "N", "d", "dtype", "causal", "tflops", "of_flash"]
    rows = of_today(pd.read_csv(H200 / "speed.csv"), "contender")
    return rows[columns].assign(ceiling=ceiling("mma.sync") * 1e-12)


def rungs() -> pd.DataFrame:
    """Each rung's counts on the default problem in the emulator, and its speed on the GPU."""
    attention = discover().computing("attention")
    own = [stage for stage in attention if stage.is_own and not stage.is_variant]
    table = pd.DataFrame({"title": [stage.title for stage in own]}, index=[stage.name for stage in own])
    counted = compare(DEFAULT_PROBLEM, list(table.index), backend="emulator").set_index("stage")
    table["conflicts"] = counted["conflicts"].astype(int)
    measured = speeds()
    here = measured[_at(measured, _SPEED_PROBLEMS[0])].groupby("contender")["tflops"].median()
    # v1 takes only fp32, and was measured on a smaller problem.
    smaller = {**_SPEED_PROBLEMS[0], "N": 1024, "dtype": "f32"}
    others = measured[_at(measured, smaller)].set_index("contender")["tflops"]
    table["tflops"] = here.combine_first(others).reindex(table.index)
    table["note"] = ["" if name in here.index else ", fp32" for name in table.index]
    return table.reset_index(names="stage")


def _at(measured: pd.DataFrame, problem: dict[str, Any]) -> pd.Series:
    """Selects the rows of this problem."""
    here = (measured["N"] == problem["N"]) & (measured["d"] == problem["d"])
    here &= measured["dtype"] == problem["dtype"]
    return here & (measured["causal"].astype(str) == str(problem["causal"]))


def shared_memory() -> pd.DataFrame:
    """Operations, wavefronts, conflicts and speed of v2 to v6 on one problem that fills the GPU, and
    the ceilings: of mma.sync in TFLOP/s, of shared memory in wavefronts per second.
    """
    n, d = _ROOFLINE_PROBLEM.q_len, _ROOFLINE_PROBLEM.head_dim
    counted = of_today(pd.read_csv(H200 / "bounds.csv"), "stage")
    counted = pd.concat([counted, nsight.counters(counted)], axis=1)
    counted["wavefronts"] = counted["wavefronts_ld"] + counted["wavefronts_st"]
    mma_sync = [stage.name for stage in discover().computing("attention") if not stage.only_arch]
    here = counted[(counted["N"] == n) & (counted["d"] == d) & counted["stage"].isin(mma_sync)]
    speed = speeds().rename(columns={"contender": "stage"})
    both = here.merge(speed, on=["stage", "N", "d", "dtype", "causal"])
    chosen = both[["stage", "wavefronts", "conflicts", "tflops", "ceiling"]]
    served = ceiling("ldmatrix") / _WAVEFRONT_BYTES
    return chosen.assign(flops=_ROOFLINE_PROBLEM.flops, wavefronts_per_second=served)


def busy() -> pd.DataFrame:
    """How busy each unit is in each rung, in percent, at the problems of the speed table, in order."""
    counted = of_today(pd.read_csv(H200 / "bounds.csv"), "stage")
    shares = nsight.bounds(counted)[[*_UNITS]].rename(columns=_UNITS)
    table = pd.concat([counted[["stage", "N", "d", "dtype"]], shares], axis=1)
    place = {stage.name: number for number, stage in enumerate(discover())}
    table = table.sort_values("stage", key=lambda names: names.map(place), kind="stable")
    return table[(table["N"] == 4096) & (table["dtype"] == "bf16")].drop(columns=["N", "dtype"])


def draw_busy(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import busy_picture

    panels = {
        f"d = {d}": rows.drop(columns="d").set_index("stage") for d, rows in data.groupby("d", sort=True)
    }
    return busy_picture(panels, "busy, % of the time on an H200, at B=4 H=16 N=M=4096 bf16")


def turns() -> pd.DataFrame:
    """What the roles of a block did in the emulator, step by step."""
    return pd.read_csv(ROOT / "results" / "timeline_emulator.csv")


def draw_turns(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import turns_picture

    return turns_picture(data)


def timeline() -> pd.DataFrame:
    """What the roles of a block did on an H200, in clocks."""
    rows = of_today(pd.read_csv(H200 / "timeline.csv"), "stage")
    return rows[["stage", "role", "step", "begin", "end"]]


def draw_timeline(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import clocks_picture

    return clocks_picture(data)


def ranks() -> pd.DataFrame:
    """What each of two GPUs did when, in ms, in one call of each schedule and its gradients."""
    rows = measure_distributed.read(H100 / measure_distributed.FILE, "spans")
    return rows[["N", "contender", "rank", "kind", "begin", "end"]]


def draw_ranks(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import ranks_picture

    panels = {name: data[data.contender == name] for name in ("all_gather", "ring", "zigzag", "ulysses")}
    title = f"causal attention, forward and backward, of N = {data['N'].iloc[0]:,} rows on two H100s"
    return ranks_picture(panels, title)


def draw_rungs(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import rungs_picture

    problem = _SPEED_PROBLEMS[0]
    sizes = f"B=4 H=16 N=M={problem['N']} d={problem['d']} {problem['dtype']}"
    return rungs_picture(
        data,
        f"bank conflicts counted at {DEFAULT_PROBLEM} by the emulator",
        f"TFLOP/s (bars are logarithmic) at {sizes} on an H200",
    )


def draw_speeds(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import speed_picture

    return speed_picture(data, _SPEED_PROBLEMS, data["ceiling"].iloc[0])


def draw_roofline(data: pd.DataFrame) -> Figure:
    from ladder.show.plots import roofline_picture

    (wavefronts_per_second,), (roof,) = data["wavefronts_per_second"].unique(), data["ceiling"].unique()
    return roofline_picture(data, wavefronts_per_second=wavefronts_per_second, roof=roof)


ALL = {
    "rungs": Picture(rungs, draw_rungs),
    "speed": Picture(speeds, draw_speeds),
    "roofline": Picture(shared_memory, draw_roofline),
    "busy": Picture(busy, draw_busy),
    "turns": Picture(turns, draw_turns),
    "timeline": Picture(timeline, draw_timeline),
    "ranks": Picture(ranks, draw_ranks),
}


def digest(data: pd.DataFrame) -> str:
    """A digest of the numbers as written to CSV."""
    return hashlib.sha256(data.to_csv(index=False, float_format="%.6g").encode()).hexdigest()[:16]


def data_of(name: str) -> pd.DataFrame:
    """The picture's data with the numbers of rungs, which stay when a rung is renamed."""
    numbers = {stage.name: stage.number for stage in discover()}
    data = ALL[name].data()
    return data.assign(**{column: data[column].replace(numbers) for column in _NAMES.intersection(data)})


def path(name: str) -> Path:
    return PICTURES / f"{name}.svg"


def is_stale(name: str) -> bool:
    """Whether the picture is missing or was drawn from other data."""
    file = path(name)
    return not file.is_file() or f"data {digest(data_of(name))}" not in file.read_text()


def write(name: str) -> None:
    """Draws the picture; the same data always give the same file."""
    from ladder.show.plots import as_svg

    data = data_of(name)
    PICTURES.mkdir(exist_ok=True)
    path(name).write_text(as_svg(ALL[name].draw(data), f"data {digest(data)}"), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="draw nothing; fail if a picture is out of date")
    options = parser.parse_args()
    stale = [name for name in ALL if is_stale(name)]
    for name in stale:
        if not options.check:
            write(name)
        print(f"{path(name).relative_to(ROOT)}: {'out of date' if options.check else 'drawn'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
