"""The course of the online softmax: maximum, sum and rescaling of one query row over the tiles of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, GREEN, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOFTMAX_TILE = 32  # keys; v1's at d = 64


@dataclass(frozen=True)
class Progress:
    """One query row. ``logits`` holds all of its scaled logits. The others hold one value per tile, after
    that tile: running maximum ``m``, sum ``l`` and ``rescale`` = exp(m before - m after).
    """

    logits: list[float]
    m: list[float]
    l: list[float]  # noqa: E741 - the algorithm's name
    rescale: list[float]


def softmax_picture(progress: Progress) -> Figure:
    """Draws the logits with the running maximum on top; below, the sum and the factor that rescales it."""
    tiles = len(progress.m)
    figure = new_figure(13.5, 8)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [3, 2, 2]})
    ends = [min((tile + 1) * SOFTMAX_TILE, len(progress.logits)) for tile in range(tiles)]
    middles = [tile * SOFTMAX_TILE + SOFTMAX_TILE / 2 for tile in range(tiles)]

    _draw_logits(top, progress, ends)
    _draw_sums(middle, progress, middles)
    _draw_factors(bottom, progress, middles)
    bottom.set_xlabel(f"key, in tiles of {SOFTMAX_TILE}", fontsize=14)
    bottom.set_xticks([0, *ends])
    for axes in (top, middle, bottom):
        _style(axes, ends)
    bottom.set_xlim(0, ends[-1])
    figure.suptitle(
        "Online softmax of one query row; orange where a tile has a new maximum", fontsize=17, color=INK
    )
    return figure


def _draw_logits(top: Axes, progress: Progress, ends: list[int]) -> None:
    top.plot(range(len(progress.logits)), progress.logits, ".", color=GREY, markersize=4, label="logits s")
    top.step([0, *ends], [progress.m[0], *progress.m], where="pre", color=ORANGE, linewidth=3, label="m")
    top.set_ylabel("logit", fontsize=14)
    top.legend(loc="lower right", ncols=2, fontsize=13, frameon=False)


def _draw_sums(middle: Axes, progress: Progress, middles: list[float]) -> None:
    middle.bar(middles, progress.l, SOFTMAX_TILE * 0.8, color=BLUE)
    for x, value, factor in zip(middles, progress.l, progress.rescale, strict=True):
        text = f"{value:.2f}" if value < 10 else f"{value:.1f}"
        middle.annotate(
            text, (x, value), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=12,
            color=ORANGE if factor < 1 else INK, fontweight="bold" if factor < 1 else "normal",
        )  # fmt: skip
    middle.set_ylim(0, 1.25 * max(progress.l))
    middle.set_ylabel("l", fontsize=14)


def _draw_factors(bottom: Axes, progress: Progress, middles: list[float]) -> None:
    bottom.bar(
        middles,
        progress.rescale,
        SOFTMAX_TILE * 0.8,
        color=[ORANGE if f < 1 else GREEN for f in progress.rescale],
    )
    for x, factor in zip(middles, progress.rescale, strict=True):
        text = "1" if factor == 1 else "0" if factor == 0 else f"{factor:.2f}"
        bottom.annotate(
            text, (x, factor), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=12, color=INK
        )
    bottom.set_ylim(0, 1.3)
    bottom.set_ylabel("exp(m - m')", fontsize=14)


def _style(axes: Axes, ends: list[int]) -> None:
    for end in ends:
        axes.axvline(end, color="#DDDDDD", linewidth=0.8, zorder=0)
    axes.tick_params(labelsize=12, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
