#!/usr/bin/env python3
"""Measures every rung of attention, of its gradients and of HSTU attention, each file in one run.

    python3 -m tools.measure.measure_steps --out results/h200 [speed.csv backward.csv ...]

``speed.csv`` has attention's rungs and ``backward.csv`` those of its gradients, beside torch's backends,
``hstu.csv`` those of HSTU attention, and ``few_queries.csv`` the same with few queries and many keys, the
case of h4: one row per contender and problem, like ``python -m tools.bench gpu``. The rows of a
problem are written as soon as all its contenders are measured, so a run that is stopped keeps the problems
before. Rungs in fp32 have smaller problems of their own. Needs what ``measure_climb.py`` needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import AnyProblem, BackwardProblem, HstuProblem, Problem, get_operation
from ladder.stages import discover
from tools.bench import gpu

HEADS = 16
#: Batch and length.
SIZES = ((4, 4096), (16, 1024))
FP32_SIZES = ((1, 1024),)


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


def in_16_bits_and_fp32(
    kind: type[Problem] | type[BackwardProblem], head_dims: Sequence[int]
) -> list[AnyProblem]:
    return [*problems(kind, head_dims, SIZES, "bf16"), *problems(kind, (64, 128), FP32_SIZES, "f32")]


FEW_QUERIES = [
    HstuProblem(HEADS, d, (queries,) * 8, (4096,) * 8, dtype="bf16")
    for queries in (16, 32)
    for d in (64, 128)
]
#: The problems of each file.
FILES: dict[str, Sequence[AnyProblem]] = {
    "speed.csv": in_16_bits_and_fp32(Problem, (64, 128, 256)),
    "backward.csv": in_16_bits_and_fp32(BackwardProblem, (64, 128)),
    "hstu.csv": [one for one in get_operation("hstu").bench_problems if one not in FEW_QUERIES],
    "few_queries.csv": FEW_QUERIES,
}


def rungs(chosen: Sequence[AnyProblem]) -> list[str]:
    """The project's own rungs that take one of the problems."""
    found = discover().computing(chosen[0].operation)
    return [stage.name for stage in found if stage.is_own and any(map(stage.suits, chosen))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("files", nargs="*", choices=[*FILES, []], help="default: all")
    options = parser.parse_args()
    passed = True
    try:
        for name in options.files or FILES:
            out = options.out / name
            files.require_target(out)
            measured: list[pd.DataFrame] = []
            for frame in gpu.measure_each(FILES[name], rungs(FILES[name])):
                measured.append(frame)
                gpu.write(measured, out)
                passed = passed and bool(frame.passed.dropna().all())
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
