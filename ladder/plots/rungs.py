"""The ladder at one glance: a step for each rung with its conflicts and its speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ladder.plots.figure import INK, bare, cell, ink_on, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rungs_picture(rungs: pd.DataFrame, counted: str, timed: str) -> Figure:
    """Stairs. ``rungs`` has a row for each rung, lowest first: ``stage``, ``title``, ``conflicts``,
    ``wavefronts`` and ``tflops`` (NaN where it was not measured) with a ``note`` on that speed.

    ``counted`` and ``timed`` say of what problem and machine these numbers are.
    """
    steps = len(rungs)
    figure = new_figure(13.5, 6.4)
    axes = figure.subplots()
    bare(axes, steps, steps + 1.0)
    colours = shades(steps)
    for number, rung in enumerate(rungs.to_dict("records")):
        top = steps - number - 0.6
        cell(axes, number, top, 1, steps + 1 - top, colours[number])
        ink = ink_on(colours[number])
        speed = "" if pd.isna(rung["tflops"]) else f"{rung['tflops']:.3g} TFLOP/s{rung['note']}"
        lines = (
            (rung["stage"], 17, "bold"),
            (rung["title"], 12, "normal"),
            (f"{rung['conflicts']:,} conflicts", 14, "bold"),
            (f"{rung['wavefronts']:,} wavefronts", 13, "normal"),
            (speed, 14, "bold"),
        )
        for place, (text, size, weight) in enumerate(lines):
            axes.text(
                number + 0.5, top + 0.17 + 0.27 * place, text, ha="center", va="center", fontsize=size,
                fontweight=weight, color=ink,
            )  # fmt: skip
    axes.text(0.02, 0.35, counted, fontsize=13, color=INK, va="center")
    axes.text(0.02, 0.65, timed, fontsize=13, color=INK, va="center")
    return figure
