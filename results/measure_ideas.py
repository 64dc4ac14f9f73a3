#!/usr/bin/env python3
"""Measures the gain of each idea of v6_lean, by turning off one at a time, beside v5_async and torch.

    python3 results/measure_ideas.py --out results/h200/ideas.csv
    python results/measure_ideas.py --counts --out results/idea_counts.csv     # without a GPU

Writes one row per contender and problem, like ``python -m ladder.bench gpu``. The contenders are v6_lean,
v6_lean without one idea, named ``v6_without_...``, v5_async and torch's backends. Needs what
``measure_arrangements.py`` needs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ladder.backends import get_backend
from ladder.bench import gpu
from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.stages import new_stage, stage_and_options

STAGE = "v6_lean"
PROBLEMS = [
    Problem(4, 16, 4096, 4096, head_dim, dtype="bf16", is_causal=is_causal)
    for head_dim in (64, 128)
    for is_causal in (False, True)
]


@dataclass(frozen=True)
class Idea:
    """One of v6_lean's ideas. To turn it off, ``without`` maps texts of kernel.cu to their replacements, and
    ``options`` sets options of stage.toml.
    """

    name: str
    without: Mapping[str, str]
    options: str = ""


IDEAS = (
    Idea(
        "late_scale",
        {
            "      if (problem.scale <= 0.f)\n        mul(s,": "      mul(s,",
            "      mul(m_new, m_new, late_scale);\n": "",
            "      mul(s, s, late_scale);\n": "",
        },
    ),
    Idea("lazy_rescale", {"if (any_above(m_new, m, kSlack)) {": "{"}),
    Idea(
        "half_reductions",
        {
            "row_max_in_lane(m_new, s)": "row_max(m_new, s)",
            "        max_over_lanes(m_new);\n": "",
            "row_sum_in_lane(l, s, l)": "row_sum(l, s, l)",
            "  sum_over_lanes(l);\n": "",
        },
    ),
    Idea("32_rows", {}, "ROWS=16"),
    Idea("parts", {}, "PARTS=1"),
)


def make_variant(idea: Idea, folder: Path) -> str:
    """Makes a stage in ``folder`` that is v6_lean without one idea. Returns its name with its options.

    Raises :class:`LadderError` unless kernel.cu contains each of the idea's texts exactly once.
    """
    stage = new_stage(f"v6_without_{idea.name}", STAGE, folder)
    text = stage.kernel.read_text()
    for find, replacement in idea.without.items():
        if text.count(find) != 1:
            raise LadderError(f"{STAGE}/kernel.cu has {text.count(find)} places with {find!r}, not one")
        text = text.replace(find, replacement)
    stage.kernel.write_text(text)
    return f"{stage.name}:{idea.options}" if idea.options else stage.name


@contextmanager
def variants() -> Iterator[list[str]]:
    """Makes v6_lean without each of its ideas, as stages that can be discovered within the block."""
    before = os.environ.get("LADDER_STAGES")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LADDER_STAGES"] = folder
        try:
            yield [make_variant(idea, Path(folder)) for idea in IDEAS]
        finally:
            if before is None:
                del os.environ["LADDER_STAGES"]
            else:
                os.environ["LADDER_STAGES"] = before


def measure() -> pd.DataFrame:
    """One row per contender and problem. Raises :class:`LadderError`."""
    get_backend("cuda")
    with variants() as specs:
        return gpu.measure(PROBLEMS, ["v5_async", STAGE, *specs])


def count() -> pd.DataFrame:
    """PTX instructions per thread and score of a head of 256 x 960, by contender and d."""
    from ladder.evaluation import evaluate

    rows = []
    with variants() as specs:
        for spec, d in itertools.product(["v5_async", STAGE, *specs], (64, 128)):
            stage, options = stage_and_options(spec)
            chosen = {name: str(value) for name, value in options.items()}
            problem = Problem(1, 1, 256, 960, d)
            launches = evaluate(stage, problem, backend="emulator", options=chosen).execution.launches
            executed = sum(int(launch.instructions()["executed"].sum()) for launch in launches)
            rows.append((spec, d, 32 * executed / (problem.q_len * problem.kv_len)))
    return pd.DataFrame(rows, columns=["contender", "d", "instructions_a_score"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--counts", action="store_true", help="on the emulator: instructions, not times")
    options = parser.parse_args()
    try:
        files.require_target(options.out)
        frame = count() if options.counts else measure()
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    frame.to_csv(options.out, index=False, float_format="%.6g")
    Console(width=150).print(frame.to_string() if options.counts else gpu.render(frame))
    return 0


if __name__ == "__main__":
    sys.exit(main())
