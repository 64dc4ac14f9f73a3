"""The ladder at a glance: one step per rung, with its conflicts and its speed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from ladder.show.plots.figure import GREY, INK, ORANGE, bare, cell, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The picture's width, where the bars begin, and the longest bar, in the picture's own units.
_WIDTH, _BARS, _LONGEST = 100.0, 34.0, 26.0
#: The height of the line with the columns' names.
_HEAD = 0.8


def rungs_picture(rungs: pd.DataFrame, counted: str, timed: str) -> Figure:
    """Draws one step per rung, lowest at the bottom: name, speed as a logarithmic bar, conflicts.

    ``rungs`` has one row per rung, lowest first: ``stage``, ``title``, ``conflicts``, ``tflops`` (NaN if not
    measured) and a ``note`` on that speed. ``counted`` and ``timed`` name the problem and machine of these
    numbers.
    """
    steps = len(rungs)
    figure = new_figure(8.0, 1.2 + 0.4 * steps)  # narrow, so that it can be read on a phone
    axes = figure.subplots()
    bare(axes, _WIDTH, _HEAD + steps + 1.1)
    axes.text(_BARS, _HEAD / 2, "TFLOP/s", fontsize=12, color=INK, va="center")
    axes.text(_WIDTH, _HEAD / 2, "bank conflicts", fontsize=12, color=INK, ha="right", va="center")
    colours = shades(steps)
    speeds = rungs["tflops"].dropna()
    least, most = math.log10(speeds.min()) - 0.2, math.log10(speeds.max())
    for number, rung in enumerate(rungs.to_dict("records")):
        top = _HEAD + steps - number - 1
        middle = top + 0.5
        axes.text(0, middle - 0.15, rung["stage"], fontsize=13, fontweight="bold", color=INK, va="center")
        axes.text(0, middle + 0.27, rung["title"], fontsize=9, color=GREY, va="center")
        length = 0.0
        if not pd.isna(rung["tflops"]):
            length = _LONGEST * (math.log10(rung["tflops"]) - least) / (most - least)
            cell(axes, _BARS, top + 0.1, length, 0.8, colours[number])
        speed = "not measured" if pd.isna(rung["tflops"]) else f"{rung['tflops']:.3g}{rung['note']}"
        axes.text(_BARS + length + 0.8, middle, speed, fontsize=13, color=INK, va="center")
        conflicts = rung["conflicts"]
        axes.text(
            _WIDTH, middle, f"{conflicts:,}", fontsize=13, ha="right", va="center",
            color=ORANGE if conflicts else INK, fontweight="bold" if conflicts else "normal",
        )  # fmt: skip
    foot = _HEAD + steps + 0.45
    axes.text(0, foot, timed, fontsize=10, color=INK, va="center")
    axes.text(_WIDTH, foot + 0.5, counted, fontsize=10, color=INK, ha="right", va="center")
    return figure
