"""The least time of each unit of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ladder.counts.time import Bound


def bound_picture(bounds: Mapping[str, Bound]) -> Figure:
    """Draws a panel per kernel with a bar per unit, its least time in microseconds; the longest bounds it.
    All panels have the same scale.
    """
    heights = [len(bound.units) + 2.2 for bound in bounds.values()]
    figure = new_figure(11, 0.6 + 0.4 * sum(heights))
    panels = figure.subplots(len(bounds), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    longest = max(bound.ms for bound in bounds.values()) * 1e3
    for axes, (title, bound) in zip(panels.flat, bounds.items(), strict=True):
        units = sorted(bound.units, key=lambda one: -one.ms)
        colours = [ORANGE if one.unit == bound.bounding else BLUE for one in units]
        places = range(len(units))
        axes.barh(places, [one.ms * 1e3 for one in units], 0.65, color=colours)
        for place, one in zip(places, units, strict=True):
            axes.annotate(
                f"{one.ms * 1e3:.3g} us", (one.ms * 1e3, place), xytext=(6, 0), textcoords="offset points",
                va="center", fontsize=12, color=INK,
            )  # fmt: skip
        axes.set_yticks(list(places), [one.unit.name for one in units], fontsize=12)
        axes.set_xlim(0, 1.15 * longest or 1)
        axes.set_xticks([])
        axes.set_ylim(len(units) - 0.4, -0.6)
        axes.tick_params(length=0, colors=INK)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
        axes.spines["left"].set_color(GREY)
        heading = f"{title}\n{bound.gpu.name}, {bound.clock_mhz:,.0f} MHz"
        axes.set_title(heading, fontsize=13, color=INK, loc="left", fontweight="bold")
    return figure
