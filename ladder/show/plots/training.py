"""The loss of training runs, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, INK, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The first curve is broad and the second thin, so that both are visible where they coincide.
_STYLES = ({"color": ORANGE, "linewidth": 7, "alpha": 0.5}, {"color": BLUE, "linewidth": 2})


def training_picture(losses: Mapping[str, Sequence[float]]) -> Figure:
    """Draws the losses of one or two training runs by name."""
    figure = new_figure(9, 4)
    figure.set_label(f"loss by step: {'; '.join(losses)}")
    axes = figure.subplots()
    for (name, values), style in zip(losses.items(), _STYLES, strict=False):
        axes.plot(range(1, len(values) + 1), values, label=name, **style)  # type: ignore[arg-type]
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step", fontsize=14, color=INK)
    axes.set_ylabel("loss", fontsize=14, color=INK)
    axes.tick_params(labelsize=12, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=13, labelcolor=INK)
    return figure
