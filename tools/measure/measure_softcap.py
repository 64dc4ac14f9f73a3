#!/usr/bin/env python3
"""Measures the rungs with a softcap, and copies of the first ones that use the special-function unit less.

    python3 -m tools.measure.measure_softcap --out results/h200
    python3 -m tools.measure.measure_softcap --check      # on the emulator: are they right?

It writes ``softcap.csv``: one row per rung, copy and problem, three times, since clocks change between a
problem with a softcap and the dense one beside it. The copies compute

* 2^x of a ``quarter`` or of a ``half`` of the weights on the FMA units: 2^x = 2^n 2^f, with n an integer
  and a polynomial of degree 5 for 2^f, whose relative error with fp32's roundings is 2^-22, like that of
  ex2.approx. Of x4, ptxas serialises the wgmma of ``half``.
* tanh of ``small`` logits, |s| < 3/4 c, on the FMA units: x times a polynomial of degree 2 in x^2, relative
  error 2^-12.2, less than tanh.approx's. A warp whose logits are not all small uses tanh.approx.
* the same polynomial in x4d_cubic, instead of its shorter one: ``longer``.

Needs what ``measure_climb.py`` needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem
from ladder.stages import discover
from tools.bench import gpu
from tools.measure.variants import make_variant, own_stages

#: The rung beside which each is measured.
RUNGS = {"x4_softcap": discover().today("v12c"), "x4b_softcap_gradients": discover().today("b5e")}
#: Their lines with exp2 and with tanh; helpers are inserted before the last one.
LINES = {
    "x4_softcap": (
        "  exp2(s, s);\n",
        "  mul(s, s, problem.scale);\n  tanh(s, s);\n",
        "/// m follows the maximum only when",
    ),
    "x4b_softcap_gradients": (
        "    exp2(x, x);\n",
        "    mul(x, x, p.scale / p.softcap);\n    tanh(x, x);\n",
        "/// The weights are 2^kShift * P",
    ),
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

_SMALL = """
/// s = tanh(scale * s). While all logits of a warp are below 3/4 in size, this is a polynomial.
template <RegisterTile S> __device__ inline void tanh_by_size(S &s, float scale) {
  float largest = 0.f;
#pragma unroll
  for (auto &line : s.pairs)
#pragma unroll
    for (auto &block : line)
#pragma unroll
      for (int pair = 0; pair < 4; pair++)
        largest = fmaxf(fmaxf(largest, fabsf(block[pair].x)), fabsf(block[pair].y));
  if (__any_sync(0xffffffffu, largest * fabsf(scale) >= 0.75f)) {
    mul(s, s, scale);
    tanh(s, s);
    return;
  }
  detail::map(s, [scale](float x) {
    const float y = scale * x, square = y * y;
    return y * fmaf(fmaf(0.0973554775f, square, -0.32629672f), square, 0.9997852f);
  }, s);
}

"""


#: x4d_cubic with one more term.
_LONGER = {
    "kSmall = 0.4f, kLinear = 0.999611754f, kCubic = -0.313297465f": (
        "kSmall = 0.75f, kLinear = 0.9997852f, kCubic = -0.32629672f, kFifth = 0.0973554775f"
    ),
    "  float limit, linear, cubic;": "  float limit, linear, cubic, fifth;",
    "late_scale * scale * scale * scale * kCubic}": (
        "late_scale * scale * scale * scale * kCubic,\n          late_scale * std::pow(scale, 5.f) * kFifth}"
    ),
    "fmaf(cap.cubic, x * x, cap.linear)": "fmaf(fmaf(cap.fifth, x * x, cap.cubic), x * x, cap.linear)",
}


def copies(folder: Path) -> dict[str, list[str]]:
    """Makes the copies; returns their names by rung."""
    found: dict[str, list[str]] = {}
    for rung, (exp2, tanh, first) in LINES.items():
        for name, share in SHARES.items():
            helper = _POLYNOMIAL % {**_COEFFICIENTS, "share": share}
            tile = exp2.strip()[5]
            shared = exp2.replace(f"exp2({tile}, {tile})", f"exp2_shared({tile})")
            changes = {first: helper.lstrip("\n") + first, exp2: shared}
            found.setdefault(rung, []).append(make_variant(f"{rung}_{name}", rung, changes, folder))
        scale = "problem.scale" if "problem" in tanh else "p.scale / p.softcap"
        by_size = f"{tanh[: tanh.index('mul')]}tanh_by_size({tanh.strip()[4]}, {scale});\n"
        changes = {first: _SMALL.lstrip("\n") + first, tanh: by_size}
        found[rung].append(make_variant(f"{rung}_small", rung, changes, folder))
    found["x4_softcap"].append(make_variant("x4d_cubic_longer", "x4d_cubic", _LONGER, folder))
    return found


#: The rungs that follow it.
LATER = {"x4_softcap": ("x4c_fixed_reference", "x4d_cubic"), "x4b_softcap_gradients": ()}
TURNS = 3


def problems(rung: str, head_dim: int) -> list[Problem]:
    """The dense problem, then the same with a softcap, and both causal, in turn: B4 H16 N4096 in bf16. The
    last one has logits that are larger than the cap.
    """
    kind = Problem if rung == "x4_softcap" else BackwardProblem
    dense = kind(4, 16, 4096, 4096, head_dim, dtype="bf16")
    capped = replace(dense, softcap=50.0)
    causal = [replace(dense, is_causal=True), replace(capped, window=(-1, 0))]
    return [dense, capped, *causal] * TURNS + [replace(capped, inputs="large")]


def measured(made: dict[str, list[str]]) -> Iterator[pd.DataFrame]:
    for rung, dense in RUNGS.items():
        for head_dim in (64, 128, 256):
            if head_dim in discover()[rung].head_dims:
                copied = made[rung] if head_dim == 128 else []
                yield from gpu.measure_each(problems(rung, head_dim), [dense, rung, *LATER[rung], *copied])


def check(made: dict[str, list[str]]) -> int:
    """Prints whether each copy is right on the emulator; returns 1 if one is not."""
    from ladder.run.evaluation import evaluate  # needs the emulator, which the machine that measures may lack

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
