#!/usr/bin/env python3
"""Measures what windows, softcaps, sinks and sequences of different lengths cost, beside the dense rungs.

    python3 results/measure_options.py --out results/h100

It writes ``options.csv``, one row per rung and problem: TFLOP/s of the pairs of query and key that the mask
keeps, and the multiple of the dense rung's in the same run. The dense rung of the forward pass is
v12c_end_aligned, that of the gradients b5e_dim_64, both on the same sizes, with a causal mask and without
one. The x rungs are also measured with a window that hides nothing, and with a causal one: what the feature
costs where it changes nothing. Needs what ``measure_climb.py`` needs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ladder.bench import gpu
from ladder.common import files
from ladder.errors import LadderError
from ladder.lessons.recorded import DENSE
from ladder.operations import BackwardProblem, Problem
from ladder.stages import discover

HEADS, TOKENS, LENGTH = 16, 16_384, 4096
#: Of the rungs that take a window: those of gpt-oss, of Gemma 2, and the causal one.
WINDOWS = ((127, 0), (1023, 0), (4095, 0), (-1, 0))
#: Lengths that differ, as those of a batch of texts do, of the same number of tokens.
LENGTHS = (8192, 4096, 1024, 1024, 512, 512, 512, 256, 128, 128)


def variants(dense: Problem) -> Iterator[Problem]:
    """The problems of the x rungs on the sizes of a dense one."""
    for features in ({"window": (LENGTH, LENGTH)}, {"softcap": 50.0}, {"sinks": True}):
        yield replace(dense, **features)
    for window in WINDOWS:
        for features in ({}, {"softcap": 50.0}, {"sinks": True}):
            yield replace(dense, window=window, **features)
    batch = dense.batch
    for lengths in ((LENGTH,) * batch, LENGTHS):
        for window in (None, (-1, 0), (1023, 0)):
            sizes = {"batch": len(lengths), "q_len": max(lengths), "kv_len": max(lengths)}
            yield replace(dense, **sizes, window=window, q_lens=lengths, kv_lens=lengths)


def problems(head_dim: int) -> list[Problem]:
    """The dense problems first, without a mask and causal."""
    dense = Problem(TOKENS // LENGTH, HEADS, LENGTH, LENGTH, head_dim, dtype="bf16")
    forward = [dense, replace(dense, is_causal=True), *variants(dense)]
    return [*forward, *(BackwardProblem(**asdict(one)) for one in forward)]


def rungs(problem: Problem) -> list[str]:
    """The dense rung for a dense problem, otherwise the rungs that the features are for."""
    if not problem.features:
        return [DENSE[problem.operation]]
    found = discover().computing(problem.operation)
    return [stage.name for stage in found if stage.needs and stage.suits(problem)]


def measured(operation: str, head_dim: int) -> Iterator[pd.DataFrame]:
    """The rows of each problem, with the multiples of the dense rung's speeds: without a mask, and causal."""
    chosen = [one for one in problems(head_dim) if one.operation == operation and rungs(one)]
    names = dict.fromkeys(name for one in chosen for name in rungs(one))
    dense: dict[str, float] = {}
    for problem, frame in zip(chosen, gpu.measure_each(chosen, [*names]), strict=True):
        if not problem.features:
            [speed] = frame.tflops[frame.contender == DENSE[operation]]
            dense["of_causal" if problem.is_causal else "of_dense"] = speed
        yield frame.assign(operation=operation, **{name: frame.tflops / by for name, by in dense.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    out = options.out / "options.csv"
    frames: list[pd.DataFrame] = []
    try:
        files.require_target(out)
        for operation, head_dim in itertools.product(DENSE, (64, 128)):
            for frame in measured(operation, head_dim):
                frames.append(frame)
                gpu.write(frames, out)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if all(frame.passed.dropna().all() for frame in frames) else 1


if __name__ == "__main__":
    sys.exit(main())
