"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ladder.comparison import Comparison
from ladder.emulate import ProgramLaunches
from ladder.lines import LineCounts, SourceFile
from ladder.stages import Ladder
from ladder.table import Row

#: Rows of the comparison: heading, column, how to write a value. A stage is a column of the picture, since
#: there are more things to say than stages.
_MEASURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("error", "error", lambda x: f"{x:.2e}"),
    ("  allowed", "error_bound", lambda x: f"{x:.2e}"),
    ("error of lse", "lse_error", lambda x: f"{x:.2e}"),
    ("shared loads", "shared_load_instructions", lambda x: f"{x:,}"),
    ("shared stores", "shared_store_instructions", lambda x: f"{x:,}"),
    ("ldmatrix", "ldmatrix_instructions", lambda x: f"{x:,}"),
    ("wavefronts, loads", "wavefronts_ld", lambda x: f"{x:,}"),
    ("wavefronts, stores", "wavefronts_st", lambda x: f"{x:,}"),
    ("bank conflicts, loads", "conflicts_ld", lambda x: f"{x:,}"),
    ("bank conflicts, stores", "conflicts_st", lambda x: f"{x:,}"),
    ("bank conflicts, atomics", "conflicts_atom", lambda x: f"{x:,}"),
    ("bank conflicts", "conflicts", lambda x: f"{x:,}"),
    ("mma", "mma_instructions", lambda x: f"{x:,}"),
    ("global sectors read", "global_sectors_ld", lambda x: f"{x:,}"),
    ("global sectors written", "global_sectors_st", lambda x: f"{x:,}"),
    ("time, ms", "time_ms", lambda x: f"{x:.3f}"),
    ("TFLOP/s", "tflops", lambda x: f"{x:.1f}"),
)
_SECTION_BEFORE = {"shared_load_instructions", "conflicts_ld", "mma_instructions", "time_ms"}


def comparison_table(comparison: Comparison, ladder: Ladder) -> Table:
    """A column for each stage, with the share of conflicts that it has less than the rung before."""
    rows = comparison.rows
    table = Table(title=_title(rows), title_justify="left", header_style="bold", pad_edge=False)
    table.add_column("")
    for row in rows:
        table.add_column(row["stage"], justify="right")
    table.add_row("dtype", *(row["dtype"] for row in rows))
    table.add_row("runs on", *(f"{row['backend']}, {row['arch']}" for row in rows))
    table.add_row("right", *(_verdict(row) for row in rows))
    for heading, column, write in _MEASURES:
        if all(row[column] is None for row in rows):
            continue
        if column in _SECTION_BEFORE:
            table.add_section()
        style = "bold" if column == "conflicts" else ""
        cells = ["" if row[column] is None else write(row[column]) for row in rows]
        table.add_row(Text(heading, style), *(Text(cell, style) for cell in cells))
        if column == "conflicts":
            reductions = [_reduction(row, rows, ladder) for row in rows]
            if any(reductions):
                table.add_row("  less than the rung before", *reductions)
    return table


def _title(rows: Sequence[Row]) -> str:
    row = rows[0]
    heads = f"H={row['H']}" + (f" Hkv={row['Hkv']}" if row["Hkv"] != row["H"] else "")
    causal = " causal" if row["causal"] else ""
    return f"B={row['B']} {heads} N={row['N']} M={row['M']} d={row['d']}{causal}"


def _verdict(row: Row) -> Text:
    return Text("yes", "green") if row["passed"] else Text("NO", "bold red")


def _reduction(row: Row, rows: Sequence[Row], ladder: Ladder) -> str:
    before = next((stage.before for stage in ladder if stage.name == row["stage"]), None)
    below = next((other for other in rows if other["stage"] == before), None)
    if below is None or not below["conflicts"] or row["conflicts"] is None:
        return ""
    return f"{1 - row['conflicts'] / below['conflicts']:.2%}"


def stages_table(ladder: Ladder) -> Table:
    """What there is to run."""
    table = Table(header_style="bold", pad_edge=False)
    for heading in ("stage", "idea", "dtypes", "d", "from"):
        table.add_column(heading)
    for stage in ladder:
        capability = "sm_{}{}".format(*stage.min_compute_capability)
        dims = " ".join(str(dim) for dim in stage.head_dims)
        table.add_row(stage.name, escape(stage.idea), " ".join(stage.dtypes), dims, capability)
    for name in ladder.broken:
        table.add_row(Text(name, "red"), Text("broken", "red"), "", "", "")
    return table


_LINE_COLUMNS: tuple[tuple[str, Callable[[LineCounts], int | None]], ...] = (
    ("executed", lambda counts: counts.executed),
    ("wavefronts", lambda counts: counts.wavefronts),
    ("ideal", lambda counts: counts.ideal),
    ("conflicts", lambda counts: counts.conflicts),
)


def source_table(file: SourceFile, total_conflicts: int, context: int | None) -> Table:
    """A source file with its counts; a gap in the numbers is left out code that costs nothing."""
    table = Table(
        title=escape(_short(file.path)), title_justify="left", header_style="bold", pad_edge=False, box=None
    )
    for heading, _ in _LINE_COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("line", justify="right", style="dim", no_wrap=True)
    table.add_column("source", no_wrap=True, overflow="crop")
    previous = 0
    for number, text, counts in file.listing(context):
        if previous and number > previous + 1:
            table.add_row(*[""] * 5, "⋮", "")
        previous = number
        if counts is None:
            table.add_row(*[""] * 5, str(number), Text(text, "dim"))
            continue
        conflicts = counts.conflicts or 0
        style = "bold red" if conflicts * 10 >= total_conflicts > 0 else "yellow" if conflicts else ""
        cells = [_count(read(counts)) for _, read in _LINE_COLUMNS]
        share = f"{conflicts / total_conflicts:.1%}" if conflicts and total_conflicts else ""
        table.add_row(*(Text(cell, style) for cell in (*cells, share)), str(number), Text(text, style))
    return table


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}" if value else ""


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def launches_table(launches: Sequence[ProgramLaunches]) -> Table:
    """A column for each kernel of a program, a row for each count that is not 0 throughout."""
    table = Table(header_style="bold", pad_edge=False)
    table.add_column("")
    for launch in launches:
        table.add_column(escape(launch.kernel), justify="right", overflow="fold")
    table.add_row("grid", *(_dim3(launch.grid) for launch in launches))
    table.add_row("block", *(_dim3(launch.block) for launch in launches))
    table.add_row("shared memory, bytes", *(f"{launch.smem_bytes:,}" for launch in launches))
    table.add_row("launches", *(f"{launch.launches:,}" for launch in launches))
    table.add_section()
    for name in launches[0].counters:
        values = [launch.counters[name] for launch in launches]
        if any(value != 0 for value in values):
            table.add_row(name.replace("_", " "), *("?" if v is None else f"{v:,}" for v in values))
    return table


def _dim3(sizes: tuple[int, int, int]) -> str:
    return " x ".join(str(size) for size in sizes)
