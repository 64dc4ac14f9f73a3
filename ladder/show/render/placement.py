"""Renders for the terminal where the chunks of a tile lie in shared memory, before and after the swizzle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from ladder.counts.banks import BANK_BYTES, BANKS, CHUNK_BYTES, ROW_BYTES, Chunk, Placement

if TYPE_CHECKING:
    from ladder.counts.banks import PlacedLine

_CHUNKS_OF_LINE = ROW_BYTES // CHUNK_BYTES
_MARGIN, _COLUMN = 9, 8
#: The width of a drawing; narrower terminals show the chunks of one wavefront as a list instead.
DRAWING_WIDTH = _MARGIN + _CHUNKS_OF_LINE * _COLUMN - 1
#: How many lines of 128 bytes are drawn: two core matrices deep.
_MOST_LINES = 16

_FIRST, _WAITS = "white on blue", "black on dark_orange"


def placement_lines(found: Placement, width: int) -> Iterator[RenderableType]:
    """Yields what a tile is, and each 128 bytes of it in shared memory."""
    yield Text(found.title, "bold")
    yield from (Text(f"  {fact}") for fact in found.facts)
    states = [True, False] if found.swizzle else [False]
    for is_plain in states:
        yield ""
        yield _heading(found, is_plain)
        yield from _drawing(found, is_plain) if width >= DRAWING_WIDTH else _listing(found, is_plain)
    if width >= DRAWING_WIDTH:
        yield Text(f"16 bytes each, named by their first element: {found.axes}; coloured: a wavefront", "dim")


def _heading(found: Placement, is_plain: bool) -> Text:
    wavefronts = found.wavefronts(plain=is_plain)
    banks = len(set(found.banks(plain=is_plain)))
    when = "" if not found.swizzle else "before the swizzle: " if is_plain else "after the swizzle: "
    return Text.assemble(
        (when, "bold"),
        f"rows {_rows(found.wavefront)} of one column {'would take' if is_plain else 'take'} ",
        (
            f"{wavefronts} wavefront{'s' if wavefronts > 1 else ''}",
            "bold dark_orange" if wavefronts > 1 else "bold green",
        ),
        f", {'all' if banks == BANKS else banks} banks",
    )


def _rows(chunks: tuple[Chunk, ...]) -> str:
    first, last = chunks[0].row, chunks[-1].row
    return f"{first}" if first == last else f"{first}-{last}"


def _drawing(found: Placement, is_plain: bool) -> Iterator[Text]:
    heads = (f"{4 * place}-{4 * place + 3}".rjust(_COLUMN - 1) for place in range(_CHUNKS_OF_LINE))
    yield Text("banks".rjust(_MARGIN - 1) + " " + " ".join(heads), "dim")
    by_line: dict[int, dict[int, list[Chunk]]] = {}
    for chunk in found.chunks:
        line, within = divmod(chunk.plain if is_plain else chunk.address, ROW_BYTES)
        by_line.setdefault(line, {}).setdefault(within // CHUNK_BYTES, []).append(chunk)
    taken: set[int] = set()
    for line in sorted(by_line)[:_MOST_LINES]:
        text = Text(f"{line * ROW_BYTES:>{_MARGIN - 1},} ")
        for place in range(_CHUNKS_OF_LINE):
            text.append(*_cell(found, by_line[line].get(place, []), place in taken))
            text.append(" " if place < _CHUNKS_OF_LINE - 1 else "")
            if any(chunk in found.wavefront for chunk in by_line[line].get(place, [])):
                taken.add(place)
        yield text
    if (more := len(by_line) - _MOST_LINES) > 0:
        yield Text(f"{'...':>{_MARGIN - 1}} {more} more lines of 128 bytes, the same way", "dim")


def _cell(found: Placement, chunks: list[Chunk], is_taken: bool) -> tuple[str, str]:
    """A place's text and style: orange if a chunk above it is wanted from the same banks at once."""
    if not chunks:
        return "\N{MIDDLE DOT}".rjust(_COLUMN - 1), "dim"
    several = "+" if len(chunks) > 1 else ""
    text = f"{chunks[0].row},{chunks[0].column}{several}".rjust(_COLUMN - 1)
    if not any(chunk in found.wavefront for chunk in chunks):
        return text, ""
    return text, _WAITS if is_taken else _FIRST


def _listing(found: Placement, is_plain: bool) -> Iterator[Text]:
    banks = found.banks(plain=is_plain)
    for number, chunk in enumerate(found.wavefront):
        address = chunk.plain if is_plain else chunk.address
        first = banks[CHUNK_BYTES // BANK_BYTES * number]
        yield Text(f"  row {chunk.row}: byte {address:,}, banks {first}-{first + 3}")


def placed_line_lines(found: PlacedLine, width: int) -> Iterator[RenderableType]:
    """Yields the output of ``ladder explain`` for products of a warpgroup and for boxes of TMA."""
    chosen = found.chosen
    yield Text(f"{found.stage}, {found.path.name}:{found.line}", "bold")
    yield Text(f"  {found.text}")
    if (chosen.file, chosen.line) != (found.path, found.line):
        yield Text(f"  which is, in {chosen.file.name}:{chosen.line}", "dim")
    if (chosen.kernel_file, chosen.kernel_line) != (found.path, found.line):
        yield Text(f"  called by {chosen.kernel_file.name}:{chosen.kernel_line}", "dim")
    yield ""
    yield Text(chosen.ptx if len(chosen.ptx) <= width else f"{chosen.ptx[: width - 4]} ...", "cyan")
    yield Text(f"  executed {chosen.executed:,} time{'s' if chosen.executed != 1 else ''} by warps")
    yield Text(f"  the line in all: {found.cost}")
    if others := [str(one.number) for one in found.instructions if one is not chosen]:
        listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        yield Text(f"  this is instruction {chosen.number}; others for --instruction: {listed}", "dim")
    yield Text(f"its first, in block {chosen.block}, warp {chosen.warp}:")
    for placement in found.chosen.placements:
        yield ""
        yield from placement_lines(placement, width)
