"""When the ranks of a group compute and when they communicate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

#: Where a span is drawn in its rank's lane, one unit high: from which height, how high, and its colour.
_BARS = {"compute": (0.1, 0.45, BLUE), "merge": (0.1, 0.45, ORANGE), "communicate": (0.6, 0.3, GREY)}


def ranks_picture(panels: Mapping[str, pd.DataFrame], title: str, unit: str = "ms") -> Figure:
    """Draws a panel for each table of spans, with a lane for each rank: its computation above, in its own
    colour what merging takes, and its communication below.

    Tables have the columns ``rank``, ``kind`` ("compute", "merge" or "communicate"), ``begin`` and ``end`` in
    ``unit``. All panels have the same scale.
    """
    from matplotlib.patches import Patch

    ranks = max(int(spans["rank"].max()) + 1 for spans in panels.values())
    figure = new_figure(13, 1.3 + (0.7 + 0.45 * ranks) * len(panels))
    last = max(spans["end"].max() for spans in panels.values())
    for axes, (name, spans) in zip(
        figure.subplots(len(panels), 1, squeeze=False, sharex=True).flat, panels.items(), strict=True
    ):
        for kind, (height, thickness, colour) in _BARS.items():
            for rank in range(ranks):
                own = spans[(spans["rank"] == rank) & (spans["kind"] == kind)]
                bars = list(zip(own["begin"], own["end"] - own["begin"], strict=True))
                axes.broken_barh(bars, (rank + height, thickness), facecolor=colour, edgecolor="white")
        axes.set_xlim(0, last)
        axes.set_ylim(ranks, 0)
        axes.set_yticks([rank + 0.5 for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)])
        axes.set_title(name, fontsize=14, color=INK, fontweight="bold", loc="left")
        axes.tick_params(length=0, labelsize=12, colors=INK)
        axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(unit, fontsize=12, color=INK)
    handles = [Patch(color=colour, label=kind) for kind, (_, _, colour) in _BARS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK)
    figure.suptitle(title, fontsize=13, color=INK)
    return figure
