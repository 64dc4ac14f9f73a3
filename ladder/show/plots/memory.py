"""What lies where in a block's shared memory, with the bytes of each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, GREEN, INK, LIGHT, ORANGE, SKY, bare, cell, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: KiB of shared memory that a block can have at most, and on which GPUs.
LIMITS = {48: "unless asked for", 99: "sm_86, sm_89", 163: "sm_80", 227: "sm_90"}
#: By the first letter of a part's name.
_COLOURS = {"k": BLUE, "v": GREEN, "q": SKY}
_WIDTH_INCHES, _LETTERS_PER_INCH = 11, 9


@dataclass(frozen=True)
class Part:
    """A named part of shared memory, in bytes from its beginning."""

    name: str
    begin: int
    bytes: int


def memory_picture(maps: Mapping[str, Sequence[Part]]) -> Figure:
    """Draws a bar for each title of ``maps``, with a cell for each part, and the limits of GPUs below them.

    Bytes before an aligned part stay grey. A part that is too narrow for its name is named below the bar.
    """
    most = max(part.begin + part.bytes for parts in maps.values() for part in parts)
    limits = [limit for limit in LIMITS if limit * 1024 < most]
    limits += [limit for limit in LIMITS if limit not in limits][:1]
    columns = 1.06 * max(most, limits[-1] * 1024)
    figure = new_figure(_WIDTH_INCHES, 0.6 + 1.1 * len(maps))
    figure.set_label(f"where the parts of a block's shared memory lie: {'; '.join(maps)}")
    axes = figure.subplots()
    bare(axes, columns, 1.5 * len(maps))
    for limit in limits:
        axes.axvline(limit * 1024, color=ORANGE, linewidth=1.5, linestyle="--", zorder=0)
    per_letter = columns / (_WIDTH_INCHES * _LETTERS_PER_INCH)
    for row, (title, parts) in enumerate(maps.items()):
        top = 1.5 * row + 0.4
        total = max(part.begin + part.bytes for part in parts)
        axes.text(0, top - 0.2, f"{title}: {total:,} bytes", va="center", color=INK, fontweight="bold")
        cell(axes, 0, top, total, 0.7, LIGHT)
        narrow = []
        for part in parts:
            fits = max(len(part.name), len(f"{part.bytes:,}")) * per_letter < part.bytes
            text = f"{part.name}\n{part.bytes:,}" if fits else ""
            cell(axes, part.begin, top, part.bytes, 0.7, _COLOURS.get(part.name[0], LIGHT), text, size=11)
            if not fits:
                narrow.append(f"{part.name} {part.bytes:,}")
        axes.text(0, top + 0.85, ", ".join(narrow), va="center", color=INK, fontsize=11)
    axes.set_xticks([limit * 1024 for limit in limits], [f"{limit} KiB\n{LIMITS[limit]}" for limit in limits])
    axes.tick_params(length=0, labelsize=11, colors=INK)
    return figure
