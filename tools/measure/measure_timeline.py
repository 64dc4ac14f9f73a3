#!/usr/bin/env python3
"""Measures which warpgroup of a block does what when, in v9 and v10b.

    python3 -m tools.measure.measure_timeline --out results/h200/timeline.csv
    python -m tools.measure.measure_timeline --backend emulator --out results/timeline_emulator.csv

Copies of the rungs note the clock of their SM at the borders of each step, for one block (the second, since
the first may have fewer rows) of a problem that fills the GPU. One row a step: ``stage``, ``role`` (the
consumers' numbers, then the producer's), ``step`` (see ``STEPS``), ``begin``, ``end``. On the GPU time is in
clocks from the block's first mark on. The emulator has no time: there it is the number of marks made before.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
import torch

from ladder.call.runs import Choice, prepare
from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import Problem, operation_of
from ladder.stages import discover
from tools.bench import provenance
from tools.measure.variants import make_variant, own_stages

HEAD_DIM = 64
PROBLEMS = {
    "cuda": Problem(4, 16, 4096, 4096, HEAD_DIM, dtype="bf16"),
    "emulator": Problem(1, 1, 384, 1024, HEAD_DIM, dtype="bf16"),
}
CLOCKS = {"cuda": "clock64()", "emulator": "atomicAdd(&made, 1ull)"}

#: The marks: a consumer's products begin, S is there, its weights are, O is; the producer asks for a tile.
BEGUN, S_READY, P_READY, O_READY, LOAD = range(5)

V9, V10B = map(discover().today, ("v9", "v10b"))
#: What a role does, with the marks at its beginning and end. v10b's two products are in flight together.
STEPS = {
    V9: [
        ("products", BEGUN, S_READY), ("softmax", S_READY, P_READY), ("products", P_READY, O_READY),
        ("load", LOAD, LOAD),
    ],
    V10B: [("products", BEGUN, O_READY), ("softmax", S_READY, P_READY), ("load", LOAD, LOAD)],
}  # fmt: skip

_RECORDER = """
struct Mark {
  int role, what;
  long long time;
};
constexpr int kRoles = 5, kMarks = 512;
__device__ Mark marks[kRoles][kMarks];
__device__ unsigned long long made;

struct Recorder {
  int role, count = 0;
  __device__ void operator()(int what) {
    if (blockIdx.x + blockIdx.z == 0 && blockIdx.y == 1 && (role == kRoles - 1 || threadIdx.x % 128 == 0) &&
        count < kMarks)
      marks[role][count++] = {role, what, (long long)(%CLOCK%)};
  }
};

void write_marks() {
  static Mark host[kRoles][kMarks];
  ladder::check(cudaDeviceSynchronize(), "marks");
  ladder::check(cudaMemcpyFromSymbol(host, marks, sizeof host), "marks");
  FILE *file = std::fopen(std::getenv("LADDER_MARKS"), "w");
  for (const auto &of_role : host)
    for (const Mark &mark : of_role)
      if (mark.time)
        std::fprintf(file, "%d,%d,%lld\\n", mark.role, mark.what, mark.time);
  std::fclose(file);
}
"""


def replacements(stage: str, clock: str) -> dict[str, str]:
    """Texts of the rung's kernel.cu, and what takes their place.

    In v10b the weights count as there when the consumer asks for its turn: ptxas moves exponentials
    past the wait for O.
    """
    recorder = _RECORDER.replace("%CLOCK%", clock)
    common = {
        "namespace {\n\nusing ladder::AttentionProblem;": "#include <cstdio>\n#include <cstdlib>\n\n"
        f"namespace {{\n{recorder}\nusing ladder::AttentionProblem;",
        "  Turn<2> turn;\n  for": "  Turn<2> turn;\n  Recorder mark{kRoles - 1};\n  for",
        "    smem.k.load_async(turn, maps.k": f"    mark({LOAD});\n    smem.k.load_async(turn, maps.k",
        ': launch");\n': ': launch");\n    write_marks();\n',
        "  zero(rows.l);\n": "  zero(rows.l);\n  Recorder mark{warpgroup::index()};\n",
    }
    if stage == V9:
        return common | {
            "mma_ABt(s, q_smem, smem.k.wait_full(turn));\n    warpgroup::mma_wait(s);": (
                f"mma_ABt(s, q_smem, (smem.k.wait_full(turn), mark({BEGUN}), smem.k.wait_full(turn)));\n"
                f"    warpgroup::mma_wait(s);\n    mark({S_READY});"
            ),
            "    copy(p_16, s);\n": f"    copy(p_16, s);\n    mark({P_READY});\n",
            "    warpgroup::mma_wait(o);\n": f"    warpgroup::mma_wait(o);\n    mark({O_READY});\n",
        }
    return common | {
        "in_turn.wait();\n    warpgroup::mma_ABt": (
            f"mark({P_READY});\n    in_turn.wait();\n    mark({BEGUN});\n    warpgroup::mma_ABt"
        ),
        "    warpgroup::mma_wait<1>(s);\n": f"    warpgroup::mma_wait<1>(s);\n    mark({S_READY});\n",
        "row, key);\n    warpgroup::mma_wait(o);\n": (
            f"row, key);\n    warpgroup::mma_wait(o);\n    mark({O_READY});\n"
        ),
    }


def steps(marks: pd.DataFrame, stage: str) -> pd.DataFrame:
    """Each role's steps: from each mark that begins one to the role's next mark that ends it."""
    found = []
    for role, own in marks.groupby("role"):
        for step, first, last in STEPS[stage]:
            begins, ends = (own.loc[own["mark"] == mark, "time"].to_numpy() for mark in (first, last))
            after = ends.searchsorted(begins)
            found += [
                {"stage": stage, "role": role, "step": step, "begin": begin, "end": ends[index]}
                for begin, index in zip(begins, after, strict=True)
                if index < len(ends)
            ]
    return pd.DataFrame(found).sort_values(["role", "begin"], kind="stable", ignore_index=True)


def timeline(stage: str, backend: str) -> pd.DataFrame:
    """Runs the marked copy once. Raises :class:`LadderError`."""
    with own_stages() as folder, tempfile.TemporaryDirectory() as directory:
        marks = Path(directory) / "marks.csv"
        os.environ["LADDER_MARKS"] = str(marks)
        name = make_variant(f"{stage}_marked", stage, replacements(stage, CLOCKS[backend]), folder)
        problem, device = PROBLEMS[backend], torch.device("cpu" if backend == "emulator" else "cuda")
        inputs = operation_of(problem).make_inputs(problem, device.type)
        prepare(problem, inputs, device, Choice(name))(
            *inputs.values()
        )  # in this process, which may write files
        made = pd.read_csv(marks, names=["role", "mark", "time"])
    made["time"] -= made["time"].min()
    return steps(made, stage)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--backend", choices=CLOCKS, default="cuda")
    options = parser.parse_args()
    try:
        files.require_target(options.out)
        frame = pd.concat([timeline(stage, options.backend) for stage in STEPS])
        if options.backend == "cuda":
            for column, value in reversed(provenance.measured_on().items()):
                frame.insert(0, column, value)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    frame.to_csv(options.out, index=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
