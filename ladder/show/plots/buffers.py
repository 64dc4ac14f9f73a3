"""Which tile is in which buffer, at each iteration of a loop that prefetches tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, INK, LIGHT, ORANGE, bare, cell, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def buffers_picture(buffers: int, tiles: int) -> Figure:
    """Draws one row per buffer and one column per iteration: the tile in use, and those in flight.

    Iteration j uses tile j and requests tile j + buffers - 1, into the buffer that iteration j - 1 used.
    """
    from matplotlib.patches import Patch

    figure = new_figure(11, 1.3 + 0.62 * buffers)
    figure.set_label(
        f"{buffers} buffers, {tiles} turns: the warps compute on a tile while the next is in flight"
    )
    axes = figure.subplots()
    bare(axes, tiles, buffers)
    for turn in range(tiles):
        for tile in range(turn, turn + buffers):
            text = f"tile {tile}" if tile < tiles else ""
            colour = LIGHT if tile >= tiles else BLUE if tile == turn else ORANGE
            cell(axes, turn, tile % buffers, 1, 1, colour, text, size=12, bold=tile == turn)
    axes.set_xticks([turn + 0.5 for turn in range(tiles)], [f"turn {turn}" for turn in range(tiles)])
    axes.set_yticks([row + 0.5 for row in range(buffers)], [f"buffer {row}" for row in range(buffers)])
    axes.tick_params(length=0, labelsize=12, colors=INK)
    handles = [
        Patch(color=BLUE, label="the warps compute on it"),
        Patch(color=ORANGE, label="in flight"),
        Patch(color=LIGHT, label="past the last tile: zeros"),
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12, labelcolor=INK
    )
    return figure
