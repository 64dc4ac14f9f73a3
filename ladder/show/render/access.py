"""Renders one shared-memory access for the terminal: the lanes with their banks, and the passes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ladder.counts.banks import BANKS, LANES, Access, Cell, Exploration, Pass, Service, Swizzle, lanes_text

if TYPE_CHECKING:
    from ladder.counts.banks import Explanation

_BANK_COLUMNS = 3  # characters per bank
_LABEL = "wavefront "
#: The width of a pass drawn bank by bank; narrower terminals show a list of lanes instead.
GRID_WIDTH = len(_LABEL) + 3 + BANKS * _BANK_COLUMNS

_FIRST, _WAITS = "white on blue", "black on dark_orange"


def service_lines(service: Service, width: int) -> Iterator[RenderableType]:
    """Yields the counts of an access in one line, or two if the width requires it."""
    counts = Text.assemble(
        (str(service.access), "bold"),
        f":  {_count(service.wavefronts, 'wavefront')} in {_count(len(service.passes), 'pass', 'passes')},  ",
        (
            _count(service.conflicts, "conflict") if service.conflicts else "no conflict",
            "bold dark_orange" if service.conflicts else "bold green",
        ),
    )
    ideal = f"  (its distinct bytes would fit {_count(service.ideal, 'wavefront')})"
    yield from [counts + ideal] if counts.cell_len + len(ideal) <= width else [counts, Text(ideal)]


def lanes_table(access: Access, width: int) -> Table:
    """A table of each lane's address and banks, in as many columns as fit the width."""
    columns = 4 if width >= 100 else 2 if width >= 50 else 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for _ in range(columns):
        table.add_column("lane", justify="right")
        table.add_column("address", justify="right")
        table.add_column("banks", justify="left")
        table.add_column("  ")
    rows = LANES // columns
    given = set(access.lanes)
    for row in range(rows):
        cells: list[str | Text] = []
        for lane in range(row, LANES, rows):
            address = access.addresses[lane]
            if lane not in given or address is None:
                cells += [Text(str(lane), "dim"), Text("-", "dim"), "", ""]
                continue
            banks = access.banks(lane)
            text = f"{banks[0]}" if len(banks) == 1 else f"{banks[0]}-{banks[-1]}"
            cells += [str(lane), f"{address:,}", text, ""]
        table.add_row(*cells)
    return table


def passes_lines(service: Service, width: int) -> Iterator[RenderableType]:
    """Yields each pass with the lanes served in each wavefront, drawn bank by bank if the width allows it."""
    for number, one in enumerate(service.passes):
        heading = f"{_lanes(one.lanes)}: {_count(one.wavefronts, 'wavefront')}"
        if len(service.passes) > 1:
            heading = f"pass {number + 1} of {len(service.passes)}, {heading}"
        yield Text(heading, "bold")
        if width >= GRID_WIDTH:
            yield from _drawing(one)
        else:
            yield from _listing(one)
        yield ""
    if width >= GRID_WIDTH and any(_has_sign(cell) for one in service.passes for cell in one.cells):
        yield Text("n+: lane n and others that want the same word; they are served together", "dim")


def _drawing(one: Pass) -> Iterator[Text]:
    margin = len(_LABEL) + 3
    yield Text(f"{'bank':>{margin - 1}} " + "".join(f"{bank:>2} " for bank in range(BANKS)), "dim")
    for wavefront in range(one.wavefronts):
        line = Text(f"{_LABEL}{wavefront + 1:>2} ", "" if wavefront == 0 else "dark_orange")
        bank = 0
        for cell in sorted(
            (cell for cell in one.cells if cell.wavefront == wavefront), key=lambda cell: cell.first_bank
        ):
            line.append(" · " * (cell.first_bank - bank), "dim")
            room = _room(cell)
            text = f"{cell.lanes[0]}+" if _has_sign(cell) else lanes_text(cell.lanes)
            inside = f"[{text:^{room - 2}}]" if room > 2 else f"{text:>2}"
            line.append(inside, _FIRST if wavefront == 0 else _WAITS)
            line.append(" " if len(inside) == room else "")
            bank = cell.first_bank + cell.banks
        line.append(" · " * (BANKS - bank), "dim")
        yield line


def _room(cell: Cell) -> int:
    """The number of characters available for a cell's lanes."""
    return cell.banks * _BANK_COLUMNS - 1


def _has_sign(cell: Cell) -> bool:
    """Whether a cell has too many lanes to name: then it shows the first one and a +."""
    return len(lanes_text(cell.lanes)) > _room(cell)


def _listing(one: Pass) -> Iterator[Text]:
    for wavefront in range(one.wavefronts):
        line = Text(f"  wavefront {wavefront + 1:>2}: ", "" if wavefront == 0 else "dark_orange")
        cells = [cell for cell in one.cells if cell.wavefront == wavefront]
        line.append(_lanes(sorted(lane for cell in cells for lane in cell.lanes)))
        yield line


def exploration_lines(found: Exploration, width: int, element_bytes: int | None) -> Iterator[RenderableType]:
    """Yields the output of ``ladder bank``."""
    if found.swizzle is not None:
        yield Text(f"addresses swizzled by {found.swizzle}", "dim")
    yield from service_lines(found.service, width)
    yield ""
    yield lanes_table(found.access, width)
    yield ""
    yield from passes_lines(found.service, width)
    yield from advice_lines(found, element_bytes)


def advice_lines(found: Exploration, element_bytes: int | None) -> Iterator[RenderableType]:
    """Yields advice on how to remove the conflicts."""
    if not found.service.conflicts:
        return
    if found.remedies:
        yield Text("no conflict is left with the addresses swizzled by", "bold")
        yield from (Text(f"  {_swizzle_text(swizzle, element_bytes)}") for swizzle in found.remedies)
        yield Text(
            "if the tile's base is aligned to what the swizzle spans; look at its other accesses too", "dim"
        )
        return
    yield Text("no swizzle<B, M, S> of the addresses takes all these conflicts away", "bold")
    if found.best is not None:
        swizzle, left = found.best
        yield Text(f"  {_swizzle_text(swizzle, element_bytes)} leaves {_count(left, 'conflict')}")
    if found.access.op.startswith("atom"):
        yield Text("  atomics on one word follow each other wherever that word lies", "dim")


def _lanes(lanes: Sequence[int]) -> str:
    return f"lane{'s' if len(lanes) > 1 else ''} {lanes_text(lanes)}"


def _swizzle_text(swizzle: Swizzle, element_bytes: int | None) -> str:
    text = f"swizzle<{swizzle.bits}, {swizzle.base}, {swizzle.shift}> on byte addresses"
    sizes: Sequence[int] = (2, 4) if element_bytes is None else (element_bytes,)
    others = [
        f"<{other.bits}, {other.base}, {other.shift}> on elements of {size} bytes"
        for size in sizes
        if size > 1 and (other := swizzle.in_elements(size)) is not None
    ]
    if element_bytes is not None and element_bytes > 1 and not others:
        others = [f"none on elements of {element_bytes} bytes, which it would tear apart"]
    return ", ".join([text, *others])


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def explanation_lines(found: Explanation, width: int) -> Iterator[RenderableType]:
    """Yields the output of ``ladder explain``."""
    chosen, worst = found.chosen, found.chosen.worst
    yield Text(f"{found.stage}, {found.path.name}:{found.line}", "bold")
    yield Text(f"  {found.text}")
    at_helper = (chosen.file, chosen.line) != (found.path, found.line)
    at_kernel = (chosen.kernel_file, chosen.kernel_line) != (found.path, found.line)
    if at_helper:
        yield Text(f"  which is, in {chosen.file.name}:{chosen.line}", "dim")
    if at_kernel:
        yield Text(f"  called by {chosen.kernel_file.name}:{chosen.kernel_line}", "dim")
    share = f", {found.conflicts / found.total_conflicts:.1%} of the kernel's" if found.conflicts else ""
    yield Text(
        f"  in all: {_count(found.wavefronts, 'wavefront')}, {_count(found.conflicts, 'conflict')}{share}"
    )
    yield ""
    yield Text(chosen.ptx, "cyan")
    yield Text(
        f"  executed {_count(chosen.executed, 'time')} by warps: {_count(chosen.wavefronts, 'wavefront')}, "
        f"{_count(chosen.conflicts, 'conflict')}"
    )
    if len(found.instructions) > 1:
        others = ", ".join(str(other.number) for other in found.instructions if other is not chosen)
        text = f"this is instruction {chosen.number}; the line has others for --instruction: "
        for line in textwrap.wrap(text + _shortened(others), max(20, width - 2)):
            yield Text(f"  {line}", "dim")
    yield Text(f"its access with the most conflicts, in block {worst.block}, warp {worst.warp}:")
    yield ""
    yield from service_lines(found.service, width)
    yield ""
    yield lanes_table(found.service.access, width)
    yield ""
    yield from passes_lines(found.service, width)


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60].rpartition(',')[0]}, ..."
