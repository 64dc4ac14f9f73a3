"""Wavefronts and conflicts by line and by rung."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ladder.counts import Annotated, Line
from ladder.show.plots.figure import BLUE, GREY, INK, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LONGEST_TEXT = 52


def costliest_lines(annotated: Annotated, count: int) -> list[Line]:
    """The kernel's lines with the most wavefronts, including the helpers they call, in source order."""
    lines = [
        line
        for listing in annotated.files
        for line in listing.lines
        if line.counts is not None and line.counts.conflicts is not None and not line.is_helper
    ]
    most = sorted(lines, key=lambda line: -(line.counts.wavefronts or 0) if line.counts else 0)[:count]
    return sorted(most, key=lambda line: line.number)


def costs_picture(
    stages: Mapping[str, Annotated], text_of: Callable[[str, int, str], str], count: int = 6
) -> Figure:
    """Draws the costliest lines of each rung: the wavefronts needed, and those that conflicts add.

    Bars are relative to the rung's costliest line, since the rungs differ by orders of magnitude. The last
    bar is the sum of all other lines, so that the bars add up to the total in the title. ``text_of`` makes a
    label from a rung, a line's number and its text.
    """
    chosen = {name: costliest_lines(annotated, count) for name, annotated in stages.items()}
    heights = [max(1, len(lines)) + 2.0 for lines in chosen.values()]
    figure = new_figure(13.5, 0.8 + 0.5 * sum(heights))
    grid = figure.subplots(len(chosen), 1, squeeze=False, gridspec_kw={"height_ratios": heights})
    for axes, (name, lines) in zip(grid.flat, chosen.items(), strict=True):
        counts = [line.counts for line in lines if line.counts is not None]
        conflicts = [one.conflicts or 0 for one in counts]
        needed = [(one.wavefronts or 0) - extra for one, extra in zip(counts, conflicts, strict=True)]
        labels = [_label(text_of(name, line.number, line.text), line.number) for line in lines]
        total = stages[name].total
        other_conflicts = (total.conflicts or 0) - sum(conflicts)
        other_needed = (total.wavefronts or 0) - sum(needed) - sum(conflicts) - other_conflicts
        if other_needed + other_conflicts:
            conflicts, needed = [*conflicts, other_conflicts], [*needed, other_needed]
            labels.append("all other lines")
        places = range(len(labels))
        axes.barh(places, needed, 0.7, color=BLUE, label="wavefronts needed")
        axes.barh(places, conflicts, 0.7, left=needed, color=ORANGE, label="added by bank conflicts")
        for place, base, extra in zip(places, needed, conflicts, strict=True):
            text = f"{base + extra:,}: " + (f"{extra:,} conflicts" if extra else "no conflict")
            axes.annotate(
                text, (base + extra, place), xytext=(6, 0), textcoords="offset points", va="center",
                fontsize=12, color=INK,
            )  # fmt: skip
        longest = max([*(base + extra for base, extra in zip(needed, conflicts, strict=True)), 1])
        axes.set_xlim(0, 1.7 * longest)
        axes.set_xticks([])
        axes.set_yticks(list(places), labels, family="monospace", fontsize=12)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.tick_params(length=0, colors=INK)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
        axes.spines["left"].set_color(GREY)
        heading = f"{name}: {total.wavefronts or 0:,} wavefronts, {total.conflicts or 0:,} conflicts"
        axes.set_title(heading, fontsize=14, color=INK, loc="left", fontweight="bold")
    handles, kinds = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, kinds, loc="outside lower center", ncols=2, frameon=False, fontsize=13, labelcolor=INK
    )
    return figure


def _label(text: str, number: int) -> str:
    text = text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
    # matplotlib would typeset text between two dollar signs as a formula.
    return f"{text}  {number}".replace("$", r"\$")
