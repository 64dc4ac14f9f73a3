"""Where the 16-byte chunks of tiles lie in shared memory, before and after the swizzle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ladder.counts.banks import CHUNK_BYTES, ROW_BYTES, Chunk, Placement
from ladder.show.plots.figure import INK, LIGHT, ORANGE, bare, cell, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PLACES = ROW_BYTES // CHUNK_BYTES
#: How many lines of 128 bytes are drawn: two core matrices deep.
_MOST_LINES = 16


def placement_picture(tiles: Sequence[Placement], title: str) -> Figure:
    """Draws each tile as a row of panels, 128 bytes of shared memory a line: before and after its swizzle.

    A cell is 16 bytes and names its first element. Those of one column of chunks have one colour; orange
    frames mark the chunks that are wanted at once. Two frames above one another need the same banks.
    """
    heights = [max(len(_lines(tile, plain)) for plain in (True, False)) for tile in tiles]
    figure = new_figure(13.5, 1.2 + sum(0.36 * height + 1.5 for height in heights))
    figure.suptitle(title, fontsize=17, color=INK)
    columns = 2 if any(tile.swizzle for tile in tiles) else 1
    grid = figure.subplots(len(tiles), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    for tile, row in zip(tiles, grid, strict=True):
        states = [True, False] if tile.swizzle else [False]
        for axes in row[len(states) :]:
            axes.axis("off")
        for axes, plain in zip(row, states, strict=False):
            _draw(axes, tile, plain)
    return figure


def _lines(tile: Placement, plain: bool) -> list[int]:
    """The lines of 128 bytes that are drawn."""
    return sorted({_address(chunk, plain) // ROW_BYTES for chunk in tile.chunks})[:_MOST_LINES]


def _address(chunk: Chunk, plain: bool) -> int:
    return chunk.plain if plain else chunk.address


def _draw(axes: Axes, tile: Placement, plain: bool) -> None:
    lines = _lines(tile, plain)
    columns = sorted({chunk.column for chunk in tile.chunks})
    colours = shades(max(2, min(len(columns), _PLACES)))
    bare(axes, _PLACES, len(lines))
    for place in range(_PLACES * len(lines)):
        cell(axes, place % _PLACES, place // _PLACES, 1, 1, LIGHT)
    drawn: set[int] = set()
    for chunk in tile.chunks:
        address = _address(chunk, plain)
        if address // ROW_BYTES not in lines or address in drawn:
            continue
        drawn.add(address)
        x, y = address % ROW_BYTES / CHUNK_BYTES, lines.index(address // ROW_BYTES)
        colour = colours[columns.index(chunk.column) % len(colours)]
        cell(axes, x, y, 1, 1, colour, f"{chunk.row},{chunk.column}", size=11)
    for chunk in tile.wavefront:
        address = _address(chunk, plain)
        _frame(axes, address % ROW_BYTES / CHUNK_BYTES, lines.index(address // ROW_BYTES))
    axes.set_yticks([y + 0.5 for y in range(len(lines))], [f"{line * ROW_BYTES:,}" for line in lines])
    banks = [f"{4 * place}-{4 * place + 3}" for place in range(_PLACES)]
    axes.set_xticks([place + 0.5 for place in range(_PLACES)], banks)
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(f"banks; in a cell its first element: {tile.axes}", fontsize=12, color=INK)
    axes.tick_params(length=0, labelsize=11, colors=INK)
    count = tile.wavefronts(plain=plain)
    wavefronts = f"{count} wavefront{'s' if count > 1 else ''}"
    if not tile.swizzle:
        framed = f"the framed take {wavefronts}"
    else:
        framed = (
            f"before the swizzle the framed would take {wavefronts}"
            if plain
            else f"after it they take {wavefronts}"
        )
    is_first = plain or not tile.swizzle
    heading = f"{tile.title}\n{framed}" if is_first else framed
    axes.set_title(heading, fontsize=13, color=INK, fontweight="bold", pad=8)
    if is_first:
        axes.set_ylabel("byte of shared memory", fontsize=12, color=INK)


def _frame(axes: Axes, x: float, y: float) -> None:
    from matplotlib.patches import Rectangle

    inset = 0.04
    size = 1 - 2 * inset
    axes.add_patch(
        Rectangle((x + inset, y + inset), size, size, fill=False, edgecolor=ORANGE, linewidth=3, zorder=3)
    )
