#!/usr/bin/env python3
"""Counts the work of rungs on measured problems, for the bounds of their times: it takes no GPU.

    python -m tools.measure.count_work                  # writes results/work.csv
    python -m tools.measure.count_work v3       # only these rows; the others stay

The rungs and problems are those of results/h200/bounds.csv. A row has the launch's grid on 132
multiprocessors, its equal work items by kind, and the amount of all per kind
(ladder/counts/time/units.py). A large problem's amounts are those of its parts, of 768 queries of one head
(ladder/counts/time/scaling.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from ladder.counts.time import Measured, count_stage, load_gpu, measured_rows
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.stages import discover, results_root

_FIRST = ["stage", "problem", "grid", "items"]


def wanted(rows: Iterable[Measured]) -> list[tuple[str, Problem]]:
    """The rungs and problems of launches whose clock is known."""
    pairs = [(row.contender, row.problem) for row in rows if row.problem]
    return list(dict.fromkeys(pairs))


def work_row(stage: str, problem: Problem) -> dict[str, Any]:
    counted = count_stage(discover()[stage], problem, load_gpu("h200"))
    if len(counted.launches) != 1:
        raise LadderError(f"{stage} launches {len(counted.launches)} kernels; the table has one")
    (work,) = counted.launches
    items = "; ".join(f"{kind}: {n} x {amount:.15g}" for kind, (n, amount) in sorted(work.items.items()))
    facts = {"grid": "x".join(map(str, work.grid)), "items": items}
    return {"stage": stage, "problem": problem.text, **facts, **work.amounts}


def _rows(stages: list[str]) -> Iterator[dict[str, Any]]:
    for stage, problem in wanted(measured_rows(results_root(), "h200/bounds.csv")):
        if not stages or stage in stages:
            yield work_row(stage, problem)
            print(stage, problem, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="The work of rungs on measured problems.")
    parser.add_argument("stages", nargs="*", metavar="STAGE")
    options = parser.parse_args()
    path = results_root() / "work.csv"
    new = pd.DataFrame(_rows(options.stages))
    if options.stages and path.is_file():
        old = pd.read_csv(path)
        new = pd.concat([old[~old["stage"].isin(options.stages)], new])
    kinds = sorted(set(new.columns) - set(_FIRST))
    new[[*_FIRST, *kinds]].sort_values(["stage", "problem"]).to_csv(path, index=False, float_format="%.15g")
    return 0


if __name__ == "__main__":
    sys.exit(main())
