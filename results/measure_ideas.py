#!/usr/bin/env python3
"""Measures the gain of each idea of a rung, by turning off one at a time, beside the rung below and torch.

    python3 results/measure_ideas.py v6_lean --out results/h200/ideas.csv
    python3 results/measure_ideas.py v11_persistent --out results/h200/climb_ideas.csv
    python results/measure_ideas.py v6_lean --counts --out results/idea_counts.csv     # without a GPU

Writes one row per run, contender and problem, like ``python -m ladder.bench gpu``. The contenders are the
rung, the rung without one idea, named ``v6_without_...``, the rung below and torch's backends. Needs what
``measure_arrangements.py`` needs.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from variants import make_variant, own_stages

from ladder.backends import get_backend
from ladder.bench import gpu
from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import Problem, get_operation
from ladder.stages import discover, stage_and_options

RUNS = 3
PROBLEMS = [
    Problem(4, 16, 4096, 4096, head_dim, dtype="bf16", is_causal=is_causal)
    for head_dim in (64, 128)
    for is_causal in (False, True)
]


@dataclass(frozen=True)
class Idea:
    """One of a rung's ideas. To turn it off, ``without`` maps texts of kernel.cu to their replacements, and
    ``options`` sets options of stage.toml.
    """

    name: str
    without: Mapping[str, str]
    options: str = ""


_LATE_SCALE = {
    "if (problem.scale <= 0.f)\n": "",
    "  mul(m_new, m_new, late_scale);\n": "",
    "  mul(s, s, late_scale);\n": "",
}

IDEAS: Mapping[str, tuple[Idea, ...]] = {
    "v6_lean": (
        Idea("late_scale", _LATE_SCALE),
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
    ),
    "v11_persistent": (
        Idea("late_scale", _LATE_SCALE),
        Idea("lazy_rescale", {"any_above(m_new, rows.m, kSlack)": "true"}),
        Idea(
            "half_reductions",
            {
                "row_max_in_lane(m_new, s)": "row_max(m_new, s)",
                "    max_over_lanes(m_new);\n": "",
                "row_sum_in_lane(rows.l, s, rows.l)": "row_sum(rows.l, s, rows.l)",
                "    sum_over_lanes(rows.l);\n": "",
            },
        ),
        Idea("overlap_within", {"mma_wait<1>(s)": "mma_wait(s)"}),
        Idea(
            "turns",
            {
                "const InTurn<A::consumers, 1> in_turn{consumer};": "const struct {\n"
                "    __device__ void start() const {}\n"
                "    __device__ void wait() const {}\n"
                "    __device__ void pass() const {}\n"
                "    __device__ void stop() const {}\n"
                "  } in_turn;"
            },
        ),
        Idea("next_q", {"q_buffers = d == 256 ? 1 : 2": "q_buffers = 1"}),
        Idea(
            "late_store",
            {
                "    if constexpr (A::q_buffers > 1)\n      finish_store();\n": "",
                "    if constexpr (A::q_buffers == 1)\n      finish_store();\n": "    finish_store();\n",
            },
        ),
        Idea("dealing", {"(round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x)": "blockIdx.x"}),
        Idea("longest_first", {"(n - 1 - among / present)": "(among / present)"}),
        Idea("heads_together", {"Work<A>::heads_together(p, blocks)": "p.batch * p.heads"}),
        Idea("three_consumers", {}, "CONSUMERS=2,KEYS=128,BUFFERS=2"),
    ),
}


@contextmanager
def contenders(rung: str) -> Iterator[list[str]]:
    """The rung below, the rung, and the rung without each of its ideas, as stages within the block."""
    below = discover()[rung].before
    with own_stages() as folder:
        specs = []
        for idea in IDEAS[rung]:
            name = f"{rung.partition('_')[0]}_without_{idea.name}"
            made = make_variant(name, rung, idea.without, folder)
            specs.append(f"{made}:{idea.options}" if idea.options else made)
        yield [*filter(None, [below]), rung, *specs]


def measure(rung: str, out: Path) -> pd.DataFrame:
    """One row per run, contender and problem, written after each run. Raises :class:`LadderError`."""
    get_backend("cuda")
    runs: list[pd.DataFrame] = []
    with contenders(rung) as specs:
        while len(runs) < RUNS:
            runs.append(gpu.measure(PROBLEMS, specs).assign(run=len(runs) + 1))
            pd.concat(runs).to_csv(out, index=False, float_format="%.6g")
    return runs[0]


def count(rung: str) -> pd.DataFrame:
    """PTX instructions per thread and score of a head of 256 x 960, by contender and d."""
    from ladder.evaluation import evaluate

    rows = []
    with contenders(rung) as specs:
        for spec, d in itertools.product(specs, (64, 128)):
            stage, options = stage_and_options(spec)
            chosen = {name: str(value) for name, value in options.items()}
            problem = Problem(1, 1, 256, 960, d)
            launches = evaluate(stage, problem, backend="emulator", options=chosen).execution.launches
            executed = sum(int(launch.instructions()["executed"].sum()) for launch in launches)
            rows.append((spec, d, 32 * executed / (problem.q_len * problem.kv_len)))
    return pd.DataFrame(rows, columns=["contender", "d", "instructions_a_score"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rung", choices=IDEAS)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--counts", action="store_true", help="on the emulator: instructions, not times")
    options = parser.parse_args()
    try:
        files.require_target(options.out)
        if options.counts:
            counted = count(options.rung)
            counted.to_csv(options.out, index=False, float_format="%.6g")
            print(counted.to_string())
        else:
            Console(width=150).print(
                gpu.render(measure(options.rung, options.out), get_operation("attention"))
            )
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
