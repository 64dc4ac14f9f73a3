"""Which role of a block does what when, in rungs whose warpgroups have roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Where a step is drawn in its role's lane, one unit high: from which height, how high, and its colour.
_BARS = {"products": (0.12, 0.38, BLUE), "softmax": (0.5, 0.38, ORANGE)}
_LABELS = {"products": "products in flight on the tensor cores", "softmax": "softmax"}


def timeline_picture(
    panels: Mapping[str, pd.DataFrame], windows: Mapping[str, tuple[float, float]], title: str, unit: str
) -> Figure:
    """Draws a panel for each table of steps, with a lane for each role: what its products take above, its
    softmax below, and a mark where the producer issues a load.

    Tables have the columns ``role`` (the highest is the producer), ``step`` ("products", "softmax" or
    "load"), ``begin`` and ``end`` in ``unit``. Each panel shows its window of time, from 0 on.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = new_figure(13, 1.5 + 2.3 * len(panels))
    for axes, (stage, steps) in zip(
        figure.subplots(len(panels), 1, squeeze=False).flat, panels.items(), strict=True
    ):
        _draw(axes, steps, windows[stage])
        axes.set_title(stage, fontsize=15, color=INK, fontweight="bold", loc="left")
        axes.set_xlabel(unit, fontsize=12, color=INK)
    handles = [
        *(Patch(color=_BARS[step][2], label=label) for step, label in _LABELS.items()),
        Line2D([], [], color=GREY, marker="v", linestyle="", markersize=9, label="the producer loads a K"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, labelcolor=INK)
    figure.suptitle(title, fontsize=13, color=INK)
    return figure


def turns_picture(steps: pd.DataFrame) -> Figure:
    """Draws the order of events in the emulator: the rows of ``results/timeline_emulator.csv``."""
    title = (
        "one block in the emulator: the order of events, not their time; products land as late as they may"
    )
    return _of_stages(steps, (0.0, 80.0), title, "events")


def clocks_picture(steps: pd.DataFrame) -> Figure:
    """Draws the clocks of an H200: the rows of ``results/h200/timeline.csv``."""
    title = "one block of many, in the middle of its work, on an H200, at B=4 H=16 N=M=4096 d=64 bf16"
    return _of_stages(steps, (40_000.0, 52_000.0), title, "clocks of the SM")


def _of_stages(steps: pd.DataFrame, window: tuple[float, float], title: str, unit: str) -> Figure:
    panels = {str(stage): rows for stage, rows in steps.groupby("stage", sort=False)}
    return timeline_picture(panels, dict.fromkeys(panels, window), title, unit)


def _draw(axes: Axes, steps: pd.DataFrame, window: tuple[float, float]) -> None:
    first, last = window
    roles = sorted(steps["role"].unique())
    for lane, role in enumerate(roles):
        own = steps[steps["role"] == role]
        for step, (height, thickness, colour) in _BARS.items():
            rows = own[own["step"] == step]
            spans = list(zip(rows["begin"] - first, rows["end"] - rows["begin"], strict=True))
            axes.broken_barh(
                spans, (lane + height, thickness), facecolor=colour, edgecolor="white", linewidth=0.8
            )
    loads = steps[(steps["step"] == "load") & steps["begin"].between(first, last)]
    producer = [len(roles) - 0.5] * len(loads)
    axes.plot(loads["begin"] - first, producer, "v", color=GREY, markersize=9, clip_on=False)
    axes.set_xlim(0, last - first)
    axes.set_ylim(len(roles), 0)
    names = [f"consumer {role}" for role in roles[:-1]] + ["producer"]
    axes.set_yticks([lane + 0.5 for lane in range(len(roles))], names)
    axes.tick_params(length=0, labelsize=12, colors=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
