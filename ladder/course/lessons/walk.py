"""The order in which FlashAttention-1 and FlashAttention-2 visit the tiles of S = Q K^T.

An instrumented copy of each kernel prints every tile it visits, so the walk is the source's own, mask and
all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ladder.course.lessons.changed import changed_copy
from ladder.errors import ExecutionError, StageError
from ladder.operations import Problem
from ladder.show.plots import Visit
from ladder.stages import discover

#: For each rung, a piece of the line at which it has reached a tile, and expressions for the tile in its
#: variables: first query row, rows, first key, keys.
ARRIVALS = {
    "v1": ("const int last_key =", "i0, kBr, j0, kBc"),
    "v1b": ("const int keys = min(kBc, p.kv_len - j0);", "block_row, kBr, j0, kBc"),
}
_SAID = re.compile(r"^tile (\d+) (\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)
#: Enough tiles to see the order and the effect of a causal mask, few enough to number.
WALK_PROBLEM = Problem(1, 1, 256, 192, 64)


def measure_walk(stage: str, problem: Problem = WALK_PROBLEM) -> list[Visit]:
    """Runs the stage on the emulator; returns the blocks' visits in order. Raises :class:`LadderError`."""
    talking = _talking_stage(stage)
    sizes = (problem.batch, problem.heads, problem.q_len, problem.kv_len, problem.head_dim)
    # A kernel's printf goes to stderr; stdout holds only the rows (docs/verdicts.md).
    command = [
        sys.executable,
        "-m",
        "ladder.cli",
        "run",
        talking.name,
        "--backend",
        "emulator",
        "--json",
        "-",
    ]
    command += ["--problem", ",".join(map(str, sizes)), *(["--causal"] if problem.is_causal else [])]
    environment = {**os.environ, "LADDER_STAGES": str(talking)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise ExecutionError(f"{stage}, with a line that tells its tiles, failed:\n{done.stderr.strip()}")
    visits: list[Visit] = []
    for match in _SAID.finditer(done.stderr):
        block_number, row, rows, key, keys = (int(word) for word in match.groups())
        step = 1 + sum(visit.block == block_number for visit in visits)
        visits.append(Visit(block_number, step, row, rows, key, keys))
    return visits


def _talking_stage(stage: str) -> Path:
    """Makes a copy of the stage that prints its tiles, always at the same path, so that builds are reused."""
    origin = discover()[stage]
    piece, tile = ARRIVALS[origin.number]
    lines = origin.kernel.read_text(encoding="utf-8").splitlines()
    places = [number for number, line in enumerate(lines) if piece in line]
    if len(places) != 1:
        raise StageError(f"{stage} has {len(places)} lines with {piece!r}, and the walk needs one")
    block = "blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)"
    lines.insert(places[0], f'if (threadIdx.x == 0) printf("tile %d %d %d %d %d\\n", {block}, {tile});')
    kernel = "\n".join(["#include <cstdio>", *lines, ""])
    return changed_copy(origin, kernel, "walk")
