"""Who waits for what: the warps of one block in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, SKY, YELLOW, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ladder.counts.time import Estimate

_COLOURS = {
    "gmma": BLUE,
    "math_pipe_throttle": SKY,
    "barrier": ORANGE,
    "long_scoreboard": GREEN,
    "short_scoreboard": YELLOW,
    "mio_throttle": PURPLE,
    "lg_throttle": PURPLE,
}
#: Of the block's time, the share that is drawn, from a third of it on, so that single waits can be seen.
_SHARE, _BEGIN = 0.08, 1 / 3


def waits_picture(estimate: Estimate, title: str) -> Figure:
    """Draws a row per warp of the longest launch's first block, with its waits by reason; it issues where the
    row is light.
    """
    launch = max(estimate.launches, key=lambda one: one.cycles)
    last = max((end for _, _, end, _, _ in launch.waits), default=1.0)
    begin, end = _BEGIN * last, (_BEGIN + _SHARE) * last
    warps = sorted({warp for warp, *_ in launch.waits})
    figure = new_figure(11, 1.6 + 0.32 * max(len(warps), 1))
    axes = figure.subplots()
    shown = {}
    for row, warp in enumerate(warps):
        axes.barh(row, end - begin, 0.8, left=begin, color=LIGHT)
        for who, first, after, reason, _ in launch.waits:
            if who == warp and after > begin and first < end:
                colour = _COLOURS.get(reason, GREY)
                left, right = max(first, begin), min(after, end)
                shown[reason] = axes.barh(row, right - left, 0.8, left=left, color=colour)
    axes.set_xlim(begin, end)
    axes.set_ylim(len(warps) - 0.4, -0.6)
    axes.set_yticks(range(len(warps)), [f"warp {warp}" for warp in warps], fontsize=12)
    axes.set_xlabel("cycle")
    axes.legend(shown.values(), shown, loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=12)
    axes.set_title(title, fontsize=13, color=INK, loc="left", fontweight="bold")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
