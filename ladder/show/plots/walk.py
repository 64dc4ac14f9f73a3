"""The order in which kernels visit the tiles of S = Q K^T."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ladder.operations import Problem
from ladder.show.plots.figure import INK, LIGHT, bare, cell, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Visit:
    """A block's visit to a tile; ``step`` numbers the block's tiles from 1."""

    block: int
    step: int
    row: int
    rows: int
    key: int
    keys: int


def walk_picture(walks: Mapping[str, Sequence[Visit]], problem: Problem) -> Figure:
    """Draws S with one cell per tile: the colour is the block that visits it, the number the step.

    Tiles that no block visits, above the diagonal of a causal mask, are grey.
    """
    figure = new_figure(13.5, 7)
    for axes, (stage, visits) in zip(figure.subplots(1, len(walks)), walks.items(), strict=True):
        _draw(axes, visits, problem)
        blocks = len({visit.block for visit in visits})
        plural = "blocks, each with a colour" if blocks > 1 else "block"
        axes.set_title(f"{stage}: {blocks} {plural}", fontsize=15, color=INK, fontweight="bold", pad=10)
    causal = ", causal: key $\\leq$ query" if problem.is_causal else ""
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
