"""Renders tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ladder.run.emulator import ProgramLaunches
from ladder.run.evaluation import Comparison, Row
from ladder.show.render.measures import COUNT_HEADINGS, RIGHT, comparison_title, measures
from ladder.stages import Ladder

if TYPE_CHECKING:
    from ladder.counts import Annotated, Line, Listing


def plain_table(title: str = "") -> Table:
    """Makes an empty table in the common style, whose title may be wider than the table."""
    return Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        title=Text(title, no_wrap=True, overflow="ignore") if title else None,
        title_justify="left",
    )


def comparison_tables(comparison: Comparison, ladder: Ladder, width: int) -> list[Table]:
    """Returns one :func:`comparison_table` of all rows, or several that each fit ``width``."""
    wide = Console(width=10_000)
    rows = comparison.rows
    for count in range(len(rows), 0, -1):
        parts = [rows[first : first + count] for first in range(0, len(rows), count)]
        tables = [comparison_table(comparison, ladder, part) for part in parts]
        if max(Measurement.get(wide, wide.options, table).maximum for table in tables) <= width:
            break
    return tables


def comparison_table(comparison: Comparison, ladder: Ladder, rows: Sequence[Row] = ()) -> Table:
    """A table with one column per stage, including the reduction of conflicts against the rung before, which
    is named unless it is the column to the left.

    ``rows`` are the rows to show, by default all.
    """
    rows = rows or comparison.rows
    table = plain_table(title=comparison_title(comparison, rows))
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_column(row["stage"], justify="right")
    for measure in measures(comparison, ladder, rows):
        if measure.begins_section:
            table.add_section()
        if measure.is_verdict:
            table.add_row(measure.heading, *(_verdict(cell) for cell in measure.cells))
            continue
        style = "bold" if measure.is_total else ""
        table.add_row(Text(measure.heading, style), *(Text(cell, style) for cell in measure.cells))
    return table


def _verdict(cell: str) -> Text:
    return Text(cell, "green" if cell == RIGHT else "bold red")


#: The most head dims that are listed one by one.
_LISTED_DIMS = 6


def shown_head_dims(dims: Sequence[int]) -> str:
    """The head dims of a rung; of many, the least and the greatest."""
    return " ".join(map(str, dims)) if len(dims) <= _LISTED_DIMS else f"{min(dims)}...{max(dims)}"


def stages_table(ladder: Ladder) -> Table:
    """A table of all stages that fits 80 columns: the idea stands below the name."""
    table = plain_table()
    table.add_column("stage and idea")
    for heading in ("dtypes", "d", "from"):
        table.add_column(heading, no_wrap=True)
    for stage in ladder:
        capability = stage.only_arch or "sm_{}{}".format(*stage.min_compute_capability)
        dims = shown_head_dims(stage.head_dims)
        idea = Padding(Text(stage.idea, "dim"), (0, 0, 0, 2))
        table.add_row(Group(Text(stage.name, "bold"), idea), " ".join(stage.dtypes), dims, capability)
    for name in ladder.broken:
        table.add_row(Text(name, "red"), Text("broken", "red"), "", "")
    return table


_LINE_HEADINGS = ("wavefronts", "share", "ideal", "conflicts", "share", "line")
#: The columns to drop first if the source has little room: the shares, then the wavefronts without conflicts.
_SPARED = (1, 4, 2)
#: Width that holds most lines of a kernel.
_SOURCE_ROOM = 80


def source_table(listing: Listing, annotated: Annotated, context: int | None, width: int | None) -> Table:
    """A table of a source file with its costs; lines without a cost are shown only near others.

    ``width`` is the terminal's: a narrow one gets fewer columns, and source that does not fit is cut off, but
    numbers never are. None shows everything.
    """
    rows = [_line_cells(line, annotated) for line in listing.near(context)]
    columns = zip(_LINE_HEADINGS, *(cells for cells, _, _ in rows), strict=True)
    widths = dict(enumerate(max(map(len, column)) for column in columns))
    longest = max((len(source) for _, source, _ in rows), default=0)
    room = longest
    if width is not None:
        room = width - sum(widths.values()) - 2 * len(widths)
        for number in _SPARED:
            if room < min(longest, _SOURCE_ROOM):
                room += widths.pop(number) + 2
        room = max(20, room)
    table = plain_table(_short(listing.path))
    table.box = None
    for number, needed in widths.items():
        table.add_column(_LINE_HEADINGS[number], justify="right", no_wrap=True, width=needed)
    table.add_column("source", no_wrap=True)
    for cells, source, style in rows:
        source = source if len(source) <= room else source[: room - 1] + "…"
        shown = [cells[number] for number in widths]
        table.add_row(*(Text(cell, style) for cell in (*shown, source)))
    return table


def _line_cells(line: Line | None, annotated: Annotated) -> tuple[tuple[str, ...], str, str]:
    """The numbers of a line, its source and its style; None stands for a gap."""
    if line is None:
        return ("", "", "", "", "", "⋮"), "", "dim"
    # A helper's cost is part of the cost of the kernel lines that call it.
    number = f"↳ {line.number}" if line.is_helper else str(line.number)
    counts = line.counts
    if counts is None:
        return ("", "", "", "", "", number), line.text, "dim"
    share = annotated.conflict_share(counts)
    style = "bold red" if (share or 0) >= 0.1 else "yellow" if counts.conflicts != 0 else "green"
    cells = (
        _count(counts.wavefronts),
        _percent(annotated.wavefront_share(counts)),
        _count(counts.ideal),
        _count(counts.conflicts),
        _percent(share) if counts.conflicts else "",
        number,
    )
    return cells, line.text, f"{style} italic" if line.is_helper else style


def source_note(annotated: Annotated) -> str:
    """Explains the marks of :func:`source_table` and gives the totals."""
    total = annotated.total
    if total.wavefronts == 0 and total.conflicts == 0:
        return "no access to shared memory"
    note = f"all: {_count(total.wavefronts) or 0} wavefronts, {_count(total.conflicts) or 0} conflicts"
    if any(line.is_helper for listing in annotated.files for line in listing.lines):
        note += "; ↳ in a helper, counted again at the kernel's lines that call it"
    return note


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}" if value else ""


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


_LAUNCHES_A_TABLE = 4


def launches_tables(launches: Sequence[ProgramLaunches]) -> Iterator[Table]:
    """Yields tables of up to four kernels of a program, with one row for each count that is not 0 in all."""
    shown = [name for name in launches[0].counters if any(launch.counters[name] != 0 for launch in launches)]
    for first in range(0, len(launches), _LAUNCHES_A_TABLE):
        part = launches[first : first + _LAUNCHES_A_TABLE]
        table = plain_table()
        table.add_column("", no_wrap=True)
        for launch in part:
            table.add_column(escape(short_kernel(launch.kernel)), justify="right", overflow="fold")
        table.add_row("grid", *(_dim3(launch.grid) for launch in part))
        table.add_row("block", *(_dim3(launch.block) for launch in part))
        table.add_row("shared bytes", *(_cell(launch.smem_bytes) for launch in part))
        table.add_row("launches", *(f"{launch.launches:,}" for launch in part))
        table.add_section()
        for name in shown:
            table.add_row(COUNT_HEADINGS[name], *(_cell(launch.counters[name]) for launch in part))
        yield table


def uncounted_line(calls: Mapping[str, int]) -> str:
    """Says which functions of libraries a program called."""
    return "not counted: " + ", ".join(f"{name} ({count:,})" for name, count in calls.items())


#: The columns of :func:`launch_lines_table`: the heading and the counters that it adds up.
_LAUNCH_LINE_COLUMNS = (
    ("instructions", ("executed",)),
    ("conflicts", ("conflicts",)),
    ("global sectors", ("global_sectors_ld", "global_sectors_st")),
)


def launch_lines_table(kernel: str, lines: Sequence[Mapping[str, Any]]) -> Table:
    """A table of the lines of one kernel of any program: counts, and the source where its file is there.

    Counts stand beside the kernel's own lines, a helper's beside the line that calls it.
    """
    table = plain_table(short_kernel(kernel))
    for heading, _ in _LAUNCH_LINE_COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("line", no_wrap=True)
    table.add_column("source", no_wrap=True)
    places: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in lines:
        places.setdefault((row["kernel_file"], row["kernel_line"]), []).append(row)
    for (file, number), rows in sorted(places.items()):
        counts = [[row[name] for row in rows for name in names] for _, names in _LAUNCH_LINE_COLUMNS]
        cells = [_cell(None if None in values else sum(values)) for values in counts]
        table.add_row(*cells, f"{Path(file).name}:{number}", Text(_source_line(file, number)))
    return table


def _source_line(file: str, number: int) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[number - 1].rstrip() if 0 < number <= len(lines) else ""


def _cell(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def short_kernel(kernel: str) -> str:
    """Shortens ``void transpose<float>(float*)`` to ``transpose<float>``."""
    depth = 0
    for place in range(len(kernel) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(kernel[place], 0)
        if depth == 0:
            return kernel[:place].removeprefix("void ") if kernel.endswith(")") else kernel
    return kernel


def _dim3(sizes: tuple[int, int, int] | None) -> str:
    if sizes is None:
        return "?"
    kept = max((i for i, size in enumerate(sizes, 1) if size != 1), default=1)
    return " x ".join(str(size) for size in sizes[:kept])
