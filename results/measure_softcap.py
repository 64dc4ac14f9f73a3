#!/usr/bin/env python3
"""Measures x4_softcap and x4b_softcap_gradients with polynomials in place of some of their exp2.

    python3 results/measure_softcap.py --out results/h200
    python3 results/measure_softcap.py --check      # on the emulator: are they right?

It writes ``softcap.csv``: one row per copy, dense rung and problem. The copies compute 2^x of a quarter, or
of half of the weights on the FMA units: 2^x = 2^n 2^f with n the nearest integer and a polynomial of degree 5
for 2^f. With fp32's roundings its relative error is 2^-22, like that of ex2.approx. x4 then needs 1.75 or 1.5
special functions per logit instead of 2.
Needs what ``measure_climb.py`` needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from variants import make_variant, own_stages

from ladder.bench import gpu
from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem
from ladder.stages import discover

#: The rung beside which each is measured, and the line whose exp2 is shared out.
RUNGS = {
    "x4_softcap": ("v12c_end_aligned", "  exp2(s, s);\n"),
    "x4b_softcap_gradients": ("b4g_wide_adds", "      exp2(x, x);\n"),
}
#: Which of a lane's pairs of weights have a polynomial for their second one: every second, or all.
SHARES = {"quarter": "pair % 2 == 1", "half": "true"}

#: Before the rung's first function. x = -inf gives n = -127 and f = 0, whose bits add up to 0.
_POLYNOMIAL = """
/// 2^x for x up to 127 without the special-function unit. The polynomial is the one of its degree with the
/// least relative error of 2^f, |f| <= 1/2.
__device__ inline float exp2_polynomial(float x) {
  constexpr float kRound = 12582912.f; // 1.5 * 2^23: the sum's last bit is worth 1
  const float rounded = fmaxf(x, -127.f) + kRound, f = fmaxf(x, -127.f) - (rounded - kRound);
  float y = fmaf(%(c5)sf, f, %(c4)sf);
  y = fmaf(y, f, %(c3)sf);
  y = fmaf(y, f, %(c2)sf);
  y = fmaf(y, f, %(c1)sf);
  y = fmaf(y, f, 1.f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(rounded) << 23));
}

/// dst = exp2(dst), of which the second weights of some pairs are polynomials.
template <RegisterTile S> __device__ inline void exp2_shared(S &s) {
#pragma unroll
  for (auto &line : s.pairs)
#pragma unroll
    for (auto &block : line)
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        float2 &x = block[pair];
        x.x = ladder::ptx::exp2_approx(x.x);
        x.y = %(share)s ? exp2_polynomial(x.y) : ladder::ptx::exp2_approx(x.y);
      }
}

"""
_COEFFICIENTS = {
    "c1": "0.693146978",
    "c2": "0.240222421",
    "c3": "0.0555073374",
    "c4": "0.00967151266",
    "c5": "0.00132647273",
}
_FIRST = "/// How far, in powers of two,"
_FIRST_OF_GRADIENTS = "/// The weights are 2^kShift * P"


def copies(folder: Path) -> dict[str, list[str]]:
    """Makes the copies; returns their names by rung."""
    found: dict[str, list[str]] = {}
    for rung, (_, line) in RUNGS.items():
        first = _FIRST if rung == "x4_softcap" else _FIRST_OF_GRADIENTS
        for name, share in SHARES.items():
            helper = _POLYNOMIAL % {**_COEFFICIENTS, "share": share}
            changes = {first: helper.lstrip("\n") + first, line: line.replace("exp2(", "exp2_shared(")}
            for tile in ("s", "x"):
                changes[line] = changes[line].replace(f"({tile}, {tile})", f"({tile})")
            found.setdefault(rung, []).append(make_variant(f"{rung}_{name}", rung, changes, folder))
    return found


def problems(rung: str) -> list[Problem]:
    """The dense problem, then the same with a softcap, and both causal: B4 H16 N4096 d128 in bf16."""
    kind = Problem if rung == "x4_softcap" else BackwardProblem
    dense = kind(4, 16, 4096, 4096, 128, dtype="bf16")
    causal = replace(dense, window=(-1, 0), softcap=50.0)
    return [dense, replace(dense, softcap=50.0), replace(dense, is_causal=True), causal]


def measured(made: dict[str, list[str]]) -> Iterator[pd.DataFrame]:
    for rung, (dense, _) in RUNGS.items():
        yield from gpu.measure_each(problems(rung), [dense, rung, *made[rung]])


def check(made: dict[str, list[str]]) -> int:
    """Prints whether each copy is right on the emulator; returns 1 if one is not."""
    from ladder.evaluation import evaluate  # needs the emulator, which the machine that measures may lack

    wrong = 0
    for rung, names in made.items():
        kind = Problem if rung == "x4_softcap" else BackwardProblem
        for name in names:
            for features in ({"window": (40, 9)}, {"inputs": "large"}):
                problem = kind(1, 1, 200, 170, 128, dtype="f16", softcap=20.0, **features)
                found = evaluate(discover()[name], problem, backend="emulator")
                print(f"{name}: {problem}: {found.text or 'right'}")
                wrong += not found.passed
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--out", type=Path, metavar="FOLDER")
    wanted.add_argument("--check", action="store_true")
    options = parser.parse_args()
    try:
        with own_stages() as folder:
            made = copies(folder)
            if options.check:
                return check(made)
            out = options.out / "softcap.csv"
            files.require_target(out)
            frames: list[pd.DataFrame] = []
            for frame in measured(made):
                frames.append(frame)
                gpu.write(frames, out)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0 if all(frame.passed.dropna().all() for frame in frames) else 1


if __name__ == "__main__":
    sys.exit(main())
