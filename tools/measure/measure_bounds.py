#!/usr/bin/env python3
"""Measures with Nsight Compute what bounds each rung on this machine's GPU.

    python3 -m tools.measure.measure_bounds --out results/h200

Needs what ``measure_counters.py`` needs and takes about a minute. It writes ``bounds.csv`` into the folder,
one row per stage and problem: each unit's utilisation, the warps' stall reasons, and the number of warps. The
problems are those of the speed table, which fill the GPU.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

from ladder.counts import nsight  # noqa: E402
from ladder.counts.profiling import Run  # noqa: E402
from ladder.errors import UnsupportedProblem  # noqa: E402
from ladder.operations import Problem  # noqa: E402
from ladder.stages import discover  # noqa: E402
from tools.measure.measure_counters import build_all, collect, environment_here, main, rows  # noqa: E402

#: One problem that every rung takes, in its first dtype, and those at which the upper rungs are quoted.
PROBLEMS = (
    Problem(4, 16, 1024, 1024, 64),
    Problem(4, 16, 4096, 4096, 64, dtype="bf16"),
    Problem(4, 16, 4096, 4096, 128, dtype="bf16"),
)
METRICS = [
    nsight.TIME,
    *nsight.BOUNDS.values(),
    *nsight.BOUND_DETAILS,
    *nsight.STALLS.values(),
    *nsight.metric_names(("wavefronts_ld", "wavefronts_st", "conflicts", "mma_instructions")),
]


def measure(out: Path, names: list[str]) -> None:
    """Writes ``out``/bounds.csv. Raises :class:`LadderError`."""
    ncu = nsight.find_ncu()
    environment = environment_here(ncu)
    os.environ["PYTHONPATH"] = str(ROOT)
    stages = discover()
    names = build_all(names or [stage.name for stage in stages.computing("attention")])
    runs = [Run(name, problem) for name in names for problem in PROBLEMS if _takes(name, problem)]
    with tempfile.TemporaryDirectory() as temporary:
        launches = collect(runs, Path(temporary) / "bounds.ncu-rep", METRICS, ncu)
    # Shares cannot be added: the longest kernel represents a rung with several.
    longest = launches.loc[launches.groupby("run")[nsight.TIME].idxmax()]
    rows(runs, longest, environment, METRICS).to_csv(out / "bounds.csv", index=False)
    print(nsight.bounds(longest).assign(run=[runs[n].stage for n in longest["run"]]).to_string())


def _takes(name: str, problem: Problem) -> bool:
    try:
        discover()[name].accept(problem)
    except UnsupportedProblem:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(__doc__, measure))
