"""Which lane holds which element of a tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ladder.show.plots.figure import INK, ORANGE, bare, cell, frame, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Fragment:
    """The ``lane`` and ``register`` that hold each element of a matrix, as integer arrays (rows, columns)."""

    lane: np.ndarray
    register: np.ndarray


_TITLES = {
    "ldmatrix": "ldmatrix.x4\nfor A",
    "ldmatrix of K": "ldmatrix.x4\nfor K as B, twice 8 keys",
    "ldmatrix.trans": "ldmatrix.x4.trans\nfor V as B",
    "mma": "mma.m16n8k16\nthe sum in fp32",
}


def fragments_picture(fragments: Mapping[str, Fragment]) -> Figure:
    """Draws the elements of each tile with the lanes that hold them, coloured by register.

    The elements of lanes 0 and 5 are framed so that the eye can follow a lane.
    """
    figure = new_figure(17.5, 6.6)
    widths = [one.lane.shape[1] for one in fragments.values()]
    panels = figure.subplots(1, len(fragments), gridspec_kw={"width_ratios": widths})
    for axes, (name, fragment) in zip(panels, fragments.items(), strict=True):
        _draw(axes, fragment)
        axes.set_title(_TITLES[name], fontsize=14, color=INK, fontweight="bold")
    figure.suptitle("Which lane holds which element", fontsize=17, color=INK)
    _legend(figure)
    return figure


_FOLLOWED = (0, 5)


def _draw(axes: Axes, fragment: Fragment) -> None:
    rows, columns = fragment.lane.shape
    colours = shades(4)
    bare(axes, columns, rows)
    axes.set_aspect("equal")
    for row in range(rows):
        for column in range(columns):
            lane, register = int(fragment.lane[row, column]), int(fragment.register[row, column])
            cell(axes, column, row, 1, 1, colours[register], str(lane), bold=lane in _FOLLOWED)
    for row in range(rows):
        for column in range(columns):
            if fragment.lane[row, column] in _FOLLOWED:
                frame(axes, column, row)
    axes.set_xticks([0.5, *(column + 0.5 for column in range(7, columns, 8))])
    axes.set_xticklabels(["0", *(str(column) for column in range(7, columns, 8))])
    axes.set_yticks([0.5, 7.5, 8.5, rows - 0.5], ["0", "7", "8", str(rows - 1)])
    axes.xaxis.set_ticks_position("top")
    axes.tick_params(length=0, labelsize=12, colors=INK)


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=f"register {n}") for n, colour in enumerate(shades(4))]
    followed = " and ".join(str(lane) for lane in _FOLLOWED)
    handles.append(Patch(facecolor="none", edgecolor=ORANGE, linewidth=2.5, label=f"lanes {followed}"))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=13, labelcolor=INK
    )
