#!/usr/bin/env python3
"""Measures every rung of attention and of its gradients beside torch's backends, all in one run.

    python3 results/measure_steps.py --out results/h200/steps.csv

One row per contender and problem, like ``python -m ladder.bench gpu``. The rows of a problem are written as
soon as all its contenders are measured, so a run that is stopped keeps the problems before. Rungs in fp32
have smaller problems of their own. Needs what ``measure_climb.py`` needs.
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
PROBLEMS = ((Problem, (64, 128, 256)), (BackwardProblem, (64, 128)))


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
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    measured: list[pd.DataFrame] = []
    try:
        files.require_target(options.out)
        for kind, head_dims in PROBLEMS:
            chosen = problems(kind, head_dims, SIZES, "bf16")
            chosen += problems(kind, (64, 128), FP32_SIZES, "f32")
            for frame in gpu.measure_each(chosen, rungs(chosen[0])):
                measured.append(frame)
                gpu.write(measured, options.out)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if pd.concat(measured).passed.dropna().all() else 1


if __name__ == "__main__":
    sys.exit(main())
