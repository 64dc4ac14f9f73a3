"""A tile in shared memory coloured by bank, with the rows that one pass of an instruction reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ladder.counts.banks import BANK_BYTES, BANKS, ROW_BYTES
from ladder.errors import LadderError
from ladder.show.plots.figure import INK, bare, cell, frame, new_figure, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ladder.counts.banks import Explanation, Instruction

_SEGMENT_BYTES = 16
#: So many rows are drawn.
_ROWS = 16
#: Segments that occupy the same banks have the same colour.
_SEGMENT_PLACES = ROW_BYTES // _SEGMENT_BYTES
#: (row, segment) of the tile -> address.
Layout = dict[tuple[int, int], int]


def measure_layouts(plain: Explanation, other: Explanation, row_bytes: int) -> tuple[Layout, Layout]:
    """Derives, from the addresses used, where two kernels keep the 16-byte segments of the same tile.

    ``plain`` and ``other`` explain the same ``ldmatrix`` line in two rungs. The first stores tiles in
    row-major order with rows of ``row_bytes``, so its addresses tell which row and segment each lane reads.
    The same lane of the other rung reads the same segment. Addresses are relative to the tile's first byte.

    Raises :class:`LadderError` if the two lines do not make the same accesses.
    """
    if len(plain.instructions) != len(other.instructions):
        raise LadderError(
            f"{plain.stage} has {len(plain.instructions)} instructions at that line, "
            f"{other.stage} has {len(other.instructions)}"
        )
    first, first_other = _first_byte(plain, row_bytes), _first_byte(other, row_bytes)
    before: Layout = {}
    after: Layout = {}
    for one, two in zip(_in_order(plain), _in_order(other), strict=True):
        for asked, stored in zip(one.worst.addresses, two.worst.addresses, strict=True):
            if asked is None or stored is None:
                continue
            place = ((asked - first) // row_bytes, (asked - first) % row_bytes // _SEGMENT_BYTES)
            before[place], after[place] = asked - first, stored - first_other
    return before, after


def _in_order(found: Explanation) -> list[Instruction]:
    return sorted(found.instructions, key=lambda one: one.number)


def _first_byte(found: Explanation, row_bytes: int) -> int:
    """The first byte of the rows that the line's instructions touch: eight rows or a multiple."""
    known = [address for one in found.instructions for address in one.worst.addresses if address is not None]
    return min(known) // row_bytes * row_bytes


def layout_picture(plain: Explanation, other: Explanation, row_bytes: int) -> Figure:
    """Draws the first rows of a tile in two rungs, each 16-byte segment in the colour of its four banks.

    Orange frames mark the rows that the first pass of one ``ldmatrix`` reads: two of the same colour need the
    same banks, so one waits for the other.
    """
    layouts = [_first_rows(layout) for layout in measure_layouts(plain, other, row_bytes)]
    figure = new_figure(13.5, 5.6)
    for axes, found, layout in zip(figure.subplots(1, 2), (plain, other), layouts, strict=True):
        _draw(axes, layout, row_bytes // _SEGMENT_BYTES)
        # Take the instruction that starts a row, so that both panels frame the same segments.
        chosen = _in_order(found)[0]
        first = _first_byte(found, row_bytes)
        places = {address: place for place, address in layout.items()}
        taken = chosen.worst.addresses[:8]
        for address in taken:
            assert address is not None
            row, segment = places[address - first]
            frame(axes, segment, row)
        title = f"{found.stage}\n{_wavefronts(taken)} for the framed rows"
        axes.set_title(title, fontsize=15, color=INK, fontweight="bold", pad=10)
    what = "the banks" if row_bytes <= ROW_BYTES else "the first of the four banks"
    figure.suptitle(f"Rows of {row_bytes} bytes of a tile: {what} of each 16 bytes", fontsize=17, color=INK)
    return figure


def _first_rows(layout: Layout) -> Layout:
    """The segments of the first rows, after which the pattern repeats."""
    return {place: address for place, address in layout.items() if place[0] < _ROWS}


def _wavefronts(addresses: Sequence[int | None]) -> str:
    from ladder.counts.banks import Access, serve

    count = serve(Access("ldmatrix", 1, (*addresses, *(None,) * (BANKS - len(addresses))))).wavefronts
    return f"{count} wavefront{'s' if count > 1 else ''}"


def _draw(axes: Axes, layout: Layout, segments: int) -> None:
    rows = 1 + max(row for row, _ in layout)
    colours = shades(_SEGMENT_PLACES)
    bare(axes, segments, rows)
    for (row, segment), address in layout.items():
        bank = address // BANK_BYTES % BANKS
        colour = colours[address // _SEGMENT_BYTES % _SEGMENT_PLACES]
        text = f"{bank}-{bank + 3}" if segments <= _SEGMENT_PLACES else str(bank)
        cell(axes, segment, row, 1, 1, colour, text)
    axes.set_yticks([row + 0.5 for row in range(rows)], [str(row) for row in range(rows)])
    axes.set_xticks([segment + 0.5 for segment in range(segments)], [str(n) for n in range(segments)])
    axes.xaxis.set_ticks_position("top")
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("16 bytes: 8 elements of 16 bits", fontsize=13, color=INK)
    axes.set_ylabel("row", fontsize=13, color=INK)
    axes.tick_params(length=0, labelsize=12, colors=INK)
