#!/usr/bin/env python3
"""Measures the sm_90a rungs beside torch's backends: several runs, and other lengths.

    python3 -m tools.measure.measure_climb --out results/h200

Writes ``climb.csv``: one row per run, contender and problem, like ``python -m tools.bench gpu``. Shorter and
longer problems and other head dims are measured once, and their rows have no ``run``. Needs what
``measure_counters.py`` needs, except Nsight Compute.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.stages import discover
from tools.bench import gpu

RUNS = 5


def problems(batch: int, length: int, head_dims: tuple[int, ...]) -> list[Problem]:
    return [
        Problem(batch, 16, length, length, head_dim, dtype="bf16", is_causal=is_causal)
        for head_dim in head_dims
        for is_causal in (False, True)
    ]


TABLE = problems(4, 4096, (64, 128))
LENGTHS = [
    *problems(4, 4096, (32, 256)),
    *problems(16, 1024, (64, 128)),
    *problems(1, 16384, (64, 128)),
]


def rungs() -> list[str]:
    """The rungs for sm_90a, and the one below them."""
    found = [stage for stage in discover() if stage.only_arch and stage.computes == "attention"]
    return [found[0].before or "", *(stage.name for stage in found)]


def measure() -> pd.DataFrame:
    """Measures the rungs in several runs; the column ``run`` counts from 1. Other lengths come after them."""
    runs = [gpu.measure(TABLE, rungs()).assign(run=run) for run in range(1, RUNS + 1)]
    return pd.concat([*runs, gpu.measure(LENGTHS, rungs())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    target = parser.parse_args().out / "climb.csv"
    try:
        files.require_target(target)
        measure().to_csv(target, index=False, float_format="%.6g")
        print(target)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
