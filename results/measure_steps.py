#!/usr/bin/env python3
"""Measures every rung of attention and of its gradients beside torch's backends, all in one run.

    python3 results/measure_steps.py --out results/h200

``speed.csv`` has attention's rungs and ``backward.csv`` those of its gradients: one row per contender and
problem, like ``python -m ladder.bench gpu``. The rows of a problem are written as soon as all its contenders
are measured, so a run that is stopped keeps the problems before. Rungs in fp32 have smaller problems of their
own. Needs what ``measure_climb.py`` needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ladder.bench import gpu
from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import AnyProblem, BackwardProblem, Problem
from ladder.stages import discover, root

HEADS = 16
#: Batch and length.
SIZES = ((4, 4096), (16, 1024))
FP32_SIZES = ((1, 1024),)
#: With the head dims that rungs take.
PROBLEMS = {"speed.csv": (Problem, (64, 128, 256)), "backward.csv": (BackwardProblem, (64, 128))}


def problems(
    kind: type[Problem] | type[BackwardProblem],
    head_dims: Sequence[int],
    sizes: Sequence[tuple[int, int]],
    dtype: str,
) -> list[AnyProblem]:
    return [
        kind(batch, HEADS, length, length, d, dtype=dtype, is_causal=is_causal)
        for batch, length in sizes
        for d in head_dims
        for is_causal in (False, True)
    ]


def rungs(problem: AnyProblem) -> list[str]:
    """The project's own rungs of its operation."""
    return [stage.name for stage in discover().computing(problem.operation) if stage.path.parent == root()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    passed = True
    try:
        for name, (kind, head_dims) in PROBLEMS.items():
            out = options.out / name
            files.require_target(out)
            chosen = problems(kind, head_dims, SIZES, "bf16")
            chosen += problems(kind, (64, 128), FP32_SIZES, "f32")
            measured: list[pd.DataFrame] = []
            for frame in gpu.measure_each(chosen, rungs(chosen[0])):
                measured.append(frame)
                gpu.write(measured, out)
                passed = passed and bool(frame.passed.dropna().all())
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
