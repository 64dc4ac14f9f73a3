#!/usr/bin/env python3
"""Measures what windows, softcaps, sinks and sequences of different lengths cost, beside the dense rungs.

    python3 -m tools.measure.measure_options --out results/h100 [--rounds 9] [--seconds 400]
        [--pass forward backward] [--rungs STAGE ...]

Writes ``options.csv`` after each comparison: one row per contender and problem, with the columns of
``side_by_side.py``, and ``of_dense``, the multiple of the dense rung's speed in bursts. The TFLOP/s are those
of the pairs of query and key that the mask keeps.

A comparison has the contenders of one mask: the dense rung, with a causal mask if the mask's right side is 0
and otherwise without one, and the rungs that take the mask with a softcap, with sinks, with sequences or
alone. They take turns, so a change of clocks affects both sides of a ratio. The first comparison has a window
that hides nothing: it shows what a feature costs where it changes nothing. Needs what ``measure_peers.py``
needs.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem
from ladder.stages import discover
from tools.measure.attention_inputs import make_inputs
from tools.measure.side_by_side import (
    Checker,
    Peer,
    Rungs,
    Timer,
    add_options,
    made_ready,
    measure_each,
    timed,
)

#: By operation, the rung that the others are compared with.
DENSE = {"attention": discover().today("v12c"), "attention_backward": discover().today("b5e")}
HEADS, TOKENS, LENGTH, HEAD_DIMS = 16, 16_384, 4096, (64, 128)
#: None, then windows of gpt-oss and of Gemma 2, and the causal one.
MASKS = (None, (127, 0), (1023, 0), (4095, 0), (-1, 0))
#: Lengths that differ, as those of a batch of texts do, of the same number of tokens.
LENGTHS = (8192, 4096, 1024, 1024, 512, 512, 512, 256, 128, 128)
#: The masks that sequences are measured with.
OF_SEQUENCES = (None, (1023, 0), (-1, 0))
CHECKED_HEADS = 2


@dataclass(frozen=True)
class Comparison:
    """A dense problem, and problems with features under one mask, whose contenders take turns."""

    dense: Problem
    others: tuple[Problem, ...]

    def __str__(self) -> str:
        return f"{self.dense} and {self.others[0]}"


def comparisons(passes: Sequence[str]) -> Iterator[Comparison]:
    for name in passes:
        kind = Problem if name == "forward" else BackwardProblem
        for head_dim in HEAD_DIMS:
            dense = kind(TOKENS // LENGTH, HEADS, LENGTH, LENGTH, head_dim, dtype="bf16")
            for window in MASKS:
                yield comparison(dense, window)


def comparison(dense: Problem, window: tuple[int, int] | None) -> Comparison:
    """Of one mask. A rung of windows alone gets one that hides nothing, if there is no mask."""
    others = [
        replace(dense, window=window or (LENGTH, LENGTH)),
        replace(dense, window=window, softcap=50.0),
        replace(dense, window=window, sinks=True),
    ]
    if window in OF_SEQUENCES:
        for lengths in ((LENGTH,) * dense.batch, LENGTHS):
            sizes: dict[str, Any] = {"batch": len(lengths), "q_len": max(lengths), "kv_len": max(lengths)}
            others.append(replace(dense, **sizes, window=window, q_lens=lengths, kv_lens=lengths))
    return Comparison(replace(dense, is_causal=window is not None), tuple(others))


def default_rungs() -> list[str]:
    """The dense rungs, and those for windows, softcaps, sinks or sequences."""
    special = [stage.name for stage in discover() if stage.computes in DENSE and stage.needs]
    return [*DENSE.values(), *special]


def checker(problem: Problem, inputs: Mapping[str, Any]) -> Checker:
    """Of two heads; without the sinks' gradients, which are sums over batches that are not checked."""
    if problem.q_lens is None:
        return Checker(problem, inputs, ("d_sinks",))
    by_head = {
        name: tensor[:, :CHECKED_HEADS] if tensor is not None and tensor.dim() == 3 else tensor
        for name, tensor in inputs.items()
    }
    return Checker(replace(problem, heads=CHECKED_HEADS, kv_heads=CHECKED_HEADS), by_head)


def rows_of(
    compared: Comparison, rungs: Peer, timer: Timer, rounds: int, device: str
) -> list[dict[str, Any]]:
    """The rows of a comparison; ``of_dense`` is NaN if the dense rung is not among the contenders."""
    ready = []
    for problem in (compared.dense, *compared.others):
        inputs = make_inputs(problem, device)
        ready += made_ready(problem, inputs, [rungs], checker(problem, inputs))
    rows = timed(ready, timer, rounds)
    name = DENSE[compared.dense.operation]
    dense = next((row["tflops_burst"] for row in rows if row["contender"] == name), math.nan)
    return [{**row, "of_dense": row["tflops_burst"] / dense} for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, default_rungs())
    options = parser.parse_args()
    began = time.monotonic()
    try:
        chosen = [*comparisons(options.passes)]
        rungs = Rungs(options.rungs, [problem for one in chosen for problem in (one.dense, *one.others)])
        timer = Timer.here(options.power)

        def rows(compared: Comparison) -> list[dict[str, Any]]:
            return rows_of(compared, rungs.contenders, timer, options.rounds, "cuda")

        passed = measure_each(chosen, rows, options.out / "options.csv", began, options.seconds)
    except LadderError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
