"""Renders hardware counters for the terminal, beside the emulator's prediction and line by line."""

from __future__ import annotations

import linecache
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ladder.counts.profiling import Counted
from ladder.run.emulator import COUNTERS, ProgramLaunches
from ladder.show.render.measures import COUNT_HEADINGS
from ladder.show.render.tables import launches_tables, plain_table

#: Heading and column of nsight.BOUNDS.
_BOUNDS = (
    ("SMs with work", "sms"),
    ("shared memory, L1", "shared"),
    ("  busiest SM", "shared_most"),
    ("tensor cores", "tensor"),
    ("issue slots", "issue"),
    ("FMA", "fma"),
    ("ALU", "alu"),
    ("exp unit", "xu"),
    ("L2", "l2"),
    ("DRAM", "dram"),
    ("warps resident", "warps"),
)
_SHOWN_STALLS = 3
#: Up to this many problems get a table each; beyond it, one table shows the differences.
_SHOWN_PROBLEMS = 6
#: Prefixes of the counters that, on hardware, include lost arbitration.
_ARBITRATED = ("wavefronts", "conflicts")


def profile_tables(counted: Sequence[Counted]) -> Iterator[Table]:
    """Yields a table per stage, with prediction and counts side by side, then those of foreign kernels.

    Counters that none of the reports contains have no row. Many problems share one table of the differences.
    """
    of_stages = [one for one in counted if one.problem is not None and _is_counted(one)]
    if len(of_stages) > _SHOWN_PROBLEMS:
        yield _differences_table(of_stages)
    else:
        yield from map(_stage_table, of_stages)
    foreign = [one for one in counted if one.problem is None and _is_counted(one)]
    if foreign:
        known = [column for column in COUNTERS if any(one.row[column] is not None for one in foreign)]
        yield from launches_tables([_as_launches(one, known) for one in foreign])


def _is_counted(one: Counted) -> bool:
    """Whether the kernel has counters, and not only lines or times."""
    return one.executed is not None or any(one.row[column] is not None for column in COUNTERS)


def _stage_table(one: Counted) -> Table:
    table = plain_table(f"{one.name} on {one.problem}")
    for heading in ("", "emulator", "GPU", "difference"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for column in COUNTERS:
        measured, predicted = one.row[column], (one.predicted or {}).get(column)
        if not measured and not predicted:
            continue
        difference = one.difference(column)
        style = "" if difference is None else "green" if difference == 0 else "yellow"
        shown = "" if difference is None else f"{difference:+,}" if difference else "0"
        table.add_row(_heading(column), _cell(predicted), _cell(measured), Text(shown, style))
    if one.lost is not None:
        table.add_row("lost arbitration", "", f"{one.lost:,}", "")
    if one.row["time_ms"] is not None:
        table.add_row("time, ms", "", f"{one.row['time_ms']:.4f}", "")
    if one.why_not:
        table.caption = escape(f"no prediction: {one.why_not}")
    return table


def _differences_table(counted: Sequence[Counted]) -> Table:
    """One row for each problem with counters that differ, showing the worst of them, then the number of
    problems that agree.

    Differences that lost arbitration cannot explain come first, then the relatively largest.
    """
    worst = [found for one in counted if (found := _worst_difference(one))]
    predicted = [one for one in counted if one.predicted is not None]
    table = plain_table(f"what differs, of {len(counted)} problems")
    for heading in ("stage", "problem", "counter", "emulator", "GPU", "difference", "others"):
        justify: JustifyMethod = "left" if heading in ("stage", "problem", "counter") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)
    for _, one, column, others in sorted(worst, key=lambda row: row[0]):
        cells = (_cell((one.predicted or {})[column]), _cell(one.row[column]))
        shown = f"{one.difference(column):+,}"
        heading = _heading(column).strip()
        table.add_row(one.name, str(one.problem), heading, *cells, shown, f"{others or ''}")
    table.caption = f"{len(predicted) - len(worst)} of {len(predicted)} are equal in every counter"
    if unknown := [one.why_not for one in counted if one.predicted is None]:
        table.caption += f"; {len(unknown)} have no prediction: {escape(unknown[0])}"
    return table


def _worst_difference(one: Counted) -> tuple[tuple[bool, float], Counted, str, int] | None:
    """The rank of a problem's worst difference, the problem, the counter, and how many others differ."""
    ranks = [
        ((column.startswith(_ARBITRATED), -abs(difference) / max(1, int(one.row[column]))), column)
        for column in COUNTERS
        if (difference := one.difference(column))
    ]
    if not ranks:
        return None
    rank, column = min(ranks, key=lambda row: row[0])
    return rank, one, column, len(ranks) - 1


def note(counted: Sequence[Counted]) -> str:
    """Explains the differences in a sentence."""
    differences = {column: [one.difference(column) for one in counted] for column in COUNTERS}
    if all(value is None for values in differences.values() for value in values):
        return ""
    wrong = [_heading(column) for column, values in differences.items() if any(values)]
    if not wrong:
        return "the GPU counted what the emulator predicts"
    text = f"the GPU counted other {', '.join(wrong)} than predicted"
    if any(one.lost for one in counted):
        text += "; lost arbitration between warps adds wavefronts and conflicts, differently many each time"
    return text


def bounds_table(counted: Sequence[Counted]) -> Table | None:
    """A table of each unit's utilisation, one column per stage; None if nothing was measured."""
    known = [(one.name, one.bounds) for one in counted if one.bounds is not None]
    if not known:
        return None
    table = plain_table("busy, %")
    table.add_column("", no_wrap=True)
    for name, _ in known:
        table.add_column(escape(name), justify="right")
    for heading, column in _BOUNDS:
        cells = [_percent(bounds.get(column)) for _, bounds in known]
        if any(cells):
            table.add_row(heading, *cells)
    table.add_row("warps wait for", *(", ".join(most_stalled(bounds)) for _, bounds in known))
    return table


def most_stalled(bounds: Mapping[str, float | None]) -> list[str]:
    """The most frequent stall reasons of warps, in descending order, in Nsight Compute's terms."""
    stalls = {
        name.removeprefix("stall_").replace("_", " "): value
        for name, value in bounds.items()
        if name.startswith("stall_") and name != "stall_selected" and value
    }
    return sorted(stalls, key=lambda name: -stalls[name])[:_SHOWN_STALLS]


def line_tables(counted: Sequence[Counted], width: int | None) -> Iterator[Table]:
    """Yields a table per kernel of the lines of CUDA that accessed shared memory, cut off at ``width``."""
    for one in counted:
        if one.lines is None or one.lines.empty:
            continue
        predicted = ["predicted"] if one.lines["predicted"].notna().any() else []
        rows = one.lines.to_dict("records")
        cells = [
            [*(_cell(row[name]) for name in ("executed", "ideal", "wavefronts", *predicted)), _place(row)]
            for row in rows
        ]
        table = plain_table(f"{one.name}, wavefronts by line")
        headings = ["executed", "ideal", "GPU", *(["emulator"] if predicted else []), "line"]
        columns = zip(headings, *cells, strict=True)
        widths = [max(map(len, column)) for column in columns]
        for heading, needed in zip(headings, widths, strict=True):
            table.add_column(heading, justify="right", no_wrap=True, min_width=needed)
        table.add_column("source", no_wrap=True)
        room = None if width is None else max(20, width - sum(widths) - 3 * len(widths) - 4)
        for row, shown in zip(rows, cells, strict=True):
            text = str(row["text"] or linecache.getline(str(row["file"]), int(row["line"])).strip())
            text = text if room is None or len(text) <= room else text[: room - 1] + "…"
            differs = bool(predicted) and shown[2] != shown[3]
            table.add_row(*shown, Text(text), style="yellow" if differs else "")
        yield table


def _place(row: Mapping[Hashable, Any]) -> str:
    return f"{Path(str(row['file'])).name}:{row['line']}"


def _heading(column: str) -> str:
    return COUNT_HEADINGS.get(column, column.replace("_", " "))


def _as_launches(one: Counted, columns: Sequence[str]) -> ProgramLaunches:
    return ProgramLaunches(
        kernel=one.name,
        grid=_sizes(one.grid),
        block=_sizes(one.block),
        smem_bytes=one.smem_bytes,
        launches=one.launches,
        counters={"executed": one.executed, **{name: one.row[name] for name in columns}},
    )


def _sizes(text: str) -> tuple[int, int, int] | None:
    """Parses ``(8, 2, 1)`` as ncu writes it; None for older versions, which do not."""
    if not text:
        return None
    x, y, z = (int(word) for word in text.strip("()").split(","))
    return x, y, z


def _cell(value: Any) -> str:
    return "" if value is None or pd.isna(value) else f"{value:,}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
