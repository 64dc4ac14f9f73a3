"""The roofline of shared memory: the speed that a kernel's traffic allows, and the speed it reaches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from ladder.show.plots.figure import BLUE, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The height of a line of text, as a share of the picture's height.
_LINE = 0.044


def roofline_picture(table: pd.DataFrame, *, wavefronts_per_second: float, roof: float) -> Figure:
    """Draws one point per kernel: TFLOP/s over operations per shared-memory wavefront, both logarithmic.

    ``table`` has one row per kernel: ``stage``, ``flops``, ``wavefronts``, ``conflicts`` (the wavefronts that
    conflicts add) and ``tflops``. The slope is the rate of all SMs together, one wavefront per cycle each;
    the roof, in TFLOP/s, is the rate of mma.sync on registers alone. ``python -m tools.bench ceilings``
    measures both. An arrow shows where the kernel would be without its conflicts.
    """
    figure = new_figure(10.5, 6.2)
    axes = figure.subplots()
    intensity = table["flops"] / table["wavefronts"]
    without = table["flops"] / (table["wavefronts"] - table["conflicts"])
    lowest, highest = intensity.min() / 4, without.max() * 40  # room for names
    slope = wavefronts_per_second * 1e-12  # TFLOP/s at one operation per wavefront
    bottom, top = float(table["tflops"].min()) / 4, 2.2 * roof
    line = (top / bottom) ** _LINE
    # Beside its point, or below it if an arrow starts there.
    arrows = without > 1.2 * intensity
    heights = _apart(table["tflops"].where(~arrows, table["tflops"] / line**0.85).tolist(), line)
    _draw_roof(axes, lowest, highest, slope, roof)
    for row, x, free, has_arrow, height in zip(
        table.to_dict("records"), intensity, without, arrows, heights, strict=True
    ):
        y, limit = float(row["tflops"]), min(slope * x, roof)
        axes.plot([x, x], [y, limit], color=GREY, lw=1, ls=":", zorder=1)
        axes.scatter([x], [y], s=90, color=BLUE, zorder=3)
        axes.annotate(
            f"{row['stage']}: {y:.3g}, {y / limit:.0%} of the line", (x, height), xytext=(13, 0),
            textcoords="offset points", fontsize=12, color=INK, va="center",
        )  # fmt: skip
        if has_arrow:
            arrow = {"arrowstyle": "->", "color": ORANGE, "lw": 1.8}
            axes.annotate("", (free, y), (x, y), arrowprops=arrow, zorder=2)
            axes.annotate(
                f"without conflicts, ×{free / x:.3g}", (free, y), xytext=(7, 0),
                textcoords="offset points", va="center", fontsize=11.5, color=ORANGE,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(lowest, highest)
    axes.set_ylim(bottom, top)
    axes.set_xlabel("operations for each wavefront of shared memory", color=INK)
    axes.set_ylabel("TFLOP/s", color=INK)
    axes.grid(True, which="major", color="#E6E6E6", lw=0.8, zorder=0)
    axes.tick_params(colors=GREY)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure


def _apart(heights: list[float], factor: float) -> list[float]:
    """Returns the heights after moving those closer than ``factor`` apart, by as little as possible."""
    placed = list(heights)
    order = sorted(range(len(placed)), key=placed.__getitem__)
    groups: list[list[int]] = []
    for one in order:
        groups.append([one])
        while len(groups) > 1 and placed[groups[-1][0]] < placed[groups[-2][-1]] * factor:
            group = groups.pop(-2) + groups.pop()
            groups.append(group)
            middle = math.prod(heights[i] for i in group) ** (1 / len(group))
            for place, i in enumerate(group):
                placed[i] = middle * factor ** (place - (len(group) - 1) / 2)
    return placed


def _draw_roof(axes: Axes, lowest: float, highest: float, slope: float, roof: float) -> None:
    knee = min(roof / slope, highest)
    axes.plot([lowest, knee], [slope * lowest, slope * knee], color=INK, lw=2, zorder=2)
    axes.annotate(
        "one wavefront a cycle and SM", ((lowest * knee) ** 0.5, slope * (lowest * knee) ** 0.5),
        xytext=(-6, 6), textcoords="offset points", ha="right", fontsize=12, color=INK,
    )  # fmt: skip
    axes.plot([knee, highest], [roof, roof], color=INK, lw=2, zorder=2)
    axes.annotate(
        f"mma.sync alone, {roof:.0f} TFLOP/s", (highest, roof), xytext=(-4, 6),
        textcoords="offset points", ha="right", fontsize=12, color=INK,
    )  # fmt: skip
