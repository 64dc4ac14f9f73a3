"""The instructions that each rung executes per score, by kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ladder.show.plots.figure import BLUE, GREEN, GREY, INK, LIGHT, ORANGE, SKY, YELLOW, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = (BLUE, SKY, ORANGE, YELLOW, GREEN, LIGHT)


def instructions_picture(table: pd.DataFrame, title: str) -> Figure:
    """Draws one stacked bar per rung: ``table`` has rungs as rows and at most six kinds as columns."""
    figure = new_figure(11, 1.6 + 0.75 * len(table))
    axes = figure.subplots()
    left = pd.Series(0.0, index=table.index)
    for colour, kind in zip(_COLOURS, table.columns, strict=False):
        axes.barh(
            table.index, table[kind], 0.6, left=left, color=colour, label=kind, edgecolor="white", lw=0.8
        )
        left += table[kind]
    for place, total in enumerate(left):
        axes.annotate(
            f"{total:.2f}", (total, place), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=13, color=INK, fontweight="bold",
        )  # fmt: skip
    axes.set_xlim(0, 1.12 * left.max())
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelsize=13, labelcolor=INK)
    axes.tick_params(axis="x", colors=GREY)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, fontsize=14, color=INK, loc="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=12, labelcolor=INK)
    return figure
