"""The picture of a comparison: each rung's wavefronts of shared memory, and those that bank conflicts add."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ladder.show.plots.figure import BLUE, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def comparison_picture(table: pd.DataFrame, title: str = "") -> Figure:
    """Draws two bars per stage, on a logarithmic axis: the wavefronts that it needs, those of wgmma
    among them, and its conflicts.

    ``table`` is the result of :func:`ladder.compare`. Stages without counts are left out. The axis is
    logarithmic because the rungs differ by orders of magnitude; bars of length 0 are labelled.
    """
    # Only Hopper has wgmma: elsewhere its counts may be unknown.
    wavefronts = table["wavefronts_ld"] + table["wavefronts_st"] + table["wavefronts_gmma"].fillna(0)
    added = table["conflicts"] + table["conflicts_gmma"].fillna(0)
    known = table[wavefronts.notna() & added.notna()]
    figure = new_figure(11, 1.6 + 0.85 * max(1, len(known)))
    axes = figure.subplots()
    conflicts = [int(value) for value in added[known.index]]
    needed = [int(value) - extra for value, extra in zip(wavefronts[known.index], conflicts, strict=True)]
    for offset, values, colour, label in (
        (-0.19, needed, BLUE, "wavefronts needed"),
        (0.19, conflicts, ORANGE, "wavefronts added by bank conflicts"),
    ):
        places = [number + offset for number in range(len(known))]
        axes.barh(places, [max(value - 1, 0) for value in values], 0.36, left=1, color=colour, label=label)
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:,}", (max(value, 1), place), xytext=(5, 0), textcoords="offset points",
                va="center", fontsize=12, color=INK, fontweight="normal" if value else "bold",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(1, 10 * max([*needed, *conflicts, 10]))
    axes.set_yticks(range(len(known)))
    axes.set_yticklabels(list(known["stage"]), fontsize=13, color=INK)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", colors=GREY)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_title(title, fontsize=15, color=INK, loc="left")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=12, labelcolor=INK)
    return figure
