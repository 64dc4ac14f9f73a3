"""The order in which FlashAttention-1 and FlashAttention-2 visit the tiles of S = Q K^T.

A copy of each kernel says at every tile where it is: the walk is what the source does, mask and all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ladder import cache
from ladder.errors import ExecutionError, StageError
from ladder.new_stage import copy_sources
from ladder.plots import INK, LIGHT, bare, cell, new_figure, shades
from ladder.problem import Problem
from ladder.stages import discover

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: A piece of the line at which a kernel has come to a tile, and what the tile is in its words: first query
#: row, rows, first key, keys.
_ARRIVALS = {
    "v1_minimal": ("const int last_key =", "i0, kBr, j0, kBc"),
    "v2_warp_mma": ("// all warps are done with the last tiles", "block_row, kBr, kv0, kBc"),
}
_SAID = re.compile(r"^tile (\d+) (\d+) (\d+) (\d+) (\d+)$", re.MULTILINE)
#: At least four tiles of queries and of keys in both kernels: enough to see the order, few enough to number.
WALK_PROBLEM = Problem(1, 1, 512, 256, 64)


@dataclass(frozen=True)
class Visit:
    """A block at a tile; ``step`` counts the tiles of that block, from 1."""

    block: int
    step: int
    row: int
    rows: int
    key: int
    keys: int


def measure_walk(stage: str, problem: Problem = WALK_PROBLEM) -> list[Visit]:
    """The visits of all blocks, each block's in its order, on the emulator. Raises :class:`LadderError`."""
    talking = _talking_stage(stage)
    sizes = (problem.batch, problem.heads, problem.q_len, problem.kv_len, problem.head_dim)
    # What a kernel prints goes to the standard output of the process, past Python.
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
    for match in _SAID.finditer(done.stdout):
        block_number, row, rows, key, keys = (int(word) for word in match.groups())
        step = 1 + sum(visit.block == block_number for visit in visits)
        visits.append(Visit(block_number, step, row, rows, key, keys))
    return visits


def _talking_stage(stage: str) -> Path:
    """A copy of the stage that prints its tiles, always in the same place, so that it is built only once."""
    origin = discover()[stage]
    piece, tile = _ARRIVALS[stage]
    lines = origin.kernel.read_text(encoding="utf-8").splitlines()
    places = [number for number, line in enumerate(lines) if piece in line]
    if len(places) != 1:
        raise StageError(f"{stage} has {len(places)} lines with {piece!r}, and the walk needs one")
    block = "blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)"
    lines.insert(places[0], f'if (threadIdx.x == 0) printf("tile %d %d %d %d %d\\n", {block}, {tile});')
    kernel = "\n".join(["#include <cstdio>", *lines, ""])
    final = cache.root() / "walks" / cache.digest([kernel]) / f"{stage}_walk"
    with cache.lock(final):
        if not final.is_dir():
            with cache.new_directory(final) as directory:
                copy_sources(origin.path, directory)
                (directory / "kernel.cu").write_text(kernel, encoding="utf-8")
    return final


def walk_picture(
    walks: Mapping[str, Sequence[Visit]] | None = None, problem: Problem = WALK_PROBLEM
) -> Figure:
    """S with a cell for each tile: the number says when its block comes there, the colour which block it is.

    Tiles that nobody visits, above the diagonal of a causal mask, are grey.
    """
    walks = walks or {stage: measure_walk(stage, problem) for stage in _ARRIVALS}
    figure = new_figure(13.5, 7)
    for axes, (stage, visits) in zip(figure.subplots(1, len(walks)), walks.items(), strict=True):
        _draw(axes, visits, problem)
        blocks = len({visit.block for visit in visits})
        plural = "blocks, each with a colour" if blocks > 1 else "block"
        axes.set_title(f"{stage}: {blocks} {plural}", fontsize=15, color=INK, fontweight="bold", pad=10)
    causal = ", causal" if problem.is_causal else ""
    figure.suptitle(
        f"Tiles of S in the order of each block's visits: N = {problem.q_len}, M = {problem.kv_len}{causal}",
        fontsize=17, color=INK,
    )  # fmt: skip
    return figure


def _draw(axes: Axes, visits: Sequence[Visit], problem: Problem) -> None:
    bare(axes, problem.kv_len, problem.q_len)
    cell(axes, 0, 0, problem.kv_len, problem.q_len, LIGHT)
    blocks = sorted({visit.block for visit in visits})
    colours = dict(zip(blocks, shades(len(blocks)), strict=True))
    for visit in visits:
        width = min(visit.keys, problem.kv_len - visit.key)
        height = min(visit.rows, problem.q_len - visit.row)
        cell(axes, visit.key, visit.row, width, height, colours[visit.block], str(visit.step), size=15)
    axes.set_xticks(sorted({visit.key for visit in visits} | {problem.kv_len}))
    axes.set_yticks(sorted({visit.row for visit in visits} | {problem.q_len}))
    axes.tick_params(length=3, labelsize=12, colors=INK)
    axes.set_xlabel("key", fontsize=14, color=INK)
    axes.set_ylabel("query row", fontsize=14, color=INK)
