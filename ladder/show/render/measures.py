"""The comparison as headings and cells, independent of how a terminal or page lays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.operations import Operation
from ladder.run.evaluation import Comparison, Row
from ladder.stages import Ladder

#: Rows of the comparison below the errors: heading, column, formatter. Stages are columns, since there are
#: fewer of them than measures.
_MEASURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("shared loads", "shared_load_instructions", lambda x: f"{x:,}"),
    ("shared stores", "shared_store_instructions", lambda x: f"{x:,}"),
    ("ldmatrix", "ldmatrix_instructions", lambda x: f"{x:,}"),
    ("wavefronts ld", "wavefronts_ld", lambda x: f"{x:,}"),
    ("wavefronts st", "wavefronts_st", lambda x: f"{x:,}"),
    ("wavefronts gmma", "wavefronts_gmma", lambda x: f"{x:,}"),
    ("bank conflicts", "conflicts", lambda x: f"{x:,}"),
    ("  ld", "conflicts_ld", lambda x: f"{x:,}"),
    ("  st", "conflicts_st", lambda x: f"{x:,}"),
    ("  atom", "conflicts_atom", lambda x: f"{x:,}"),
    ("  gmma", "conflicts_gmma", lambda x: f"{x:,}"),
    ("mma", "mma_instructions", lambda x: f"{x:,}"),
    ("wgmma", "wgmma_instructions", lambda x: f"{x:,}"),
    ("TMA loads", "tma_load_instructions", lambda x: f"{x:,}"),
    ("TMA stores", "tma_store_instructions", lambda x: f"{x:,}"),
    ("sectors read", "global_sectors_ld", lambda x: f"{x:,}"),
    ("sectors written", "global_sectors_st", lambda x: f"{x:,}"),
    ("  by TMA, read", "tma_sectors_ld", lambda x: f"{x:,}"),
    ("  by TMA, written", "tma_sectors_st", lambda x: f"{x:,}"),
    ("time, ms", "time_ms", lambda x: f"{x:.3f}"),
    ("TFLOP/s", "tflops", lambda x: f"{x:.1f}"),
)
#: The counters' headings in tables.
COUNT_HEADINGS = {column: heading.strip() for heading, column, _ in _MEASURES} | {
    "executed": "warp instructions",
    "global_atomic_instructions": "global atomics",
    "conflicts_ld": "bank conflicts ld",
    "conflicts_st": "bank conflicts st",
    "conflicts_atom": "bank conflicts atom",
    "conflicts_gmma": "bank conflicts gmma",
    "tma_sectors_ld": "sectors read by TMA",
    "tma_sectors_st": "sectors written by TMA",
}
_SECTION_BEFORE = {"error", "shared_load_instructions", "conflicts", "mma_instructions", "time_ms"}


@dataclass(frozen=True)
class Measure:
    """One row of the comparison: a heading, and one cell per stage."""

    heading: str
    cells: tuple[str, ...]
    begins_section: bool = False
    #: Whether the cells are :data:`RIGHT` or :data:`WRONG`.
    is_verdict: bool = False
    #: Whether this is the count that the ladder is about.
    is_total: bool = False


#: The verdicts in words.
RIGHT, WRONG = "yes", "NO"


def comparison_title(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Names the problem of these rows and the backend that ran it."""
    where = ", ".join(dict.fromkeys(f"{row['backend']} {row['arch']}" for row in rows))
    return f"{comparison.operation.title_of(rows[0])} on the {where}"


def measures(comparison: Comparison, ladder: Ladder, rows: Sequence[Row]) -> Iterator[Measure]:
    """Yields the measures of ``rows``, some or all of the comparison's, unless empty or 0 in all of them."""
    yield Measure("dtype", tuple(row["dtype"] for row in rows))
    if len({row["arch"] for row in rows}) > 1:
        yield Measure("arch", tuple(row["arch"] for row in rows))
    verdicts = tuple(RIGHT if row["passed"] else WRONG for row in rows)
    yield Measure("right", verdicts, is_verdict=True)
    for heading, column, write in _measures(comparison.operation):
        cells = _cells(comparison.operation, rows, column, write)
        if cells is None:
            continue
        total = column == "conflicts"
        yield Measure(heading, cells, begins_section=column in _SECTION_BEFORE, is_total=total)
        if total:
            yield from _reductions(comparison, ladder, rows)
        if column == "time_ms":
            yield Measure("  10 to 90 %", tuple(_spread(comparison, row) for row in rows))
    for name in dict.fromkeys(name for speeds in comparison.baselines.values() for name in speeds):
        shares = tuple(_share_of(comparison, row, name) for row in rows)
        if any(shares):
            yield Measure(f"  of {name}", shares)


def _measures(operation: Operation) -> Iterator[tuple[str, str, Callable[[Any], str]]]:
    """Yields the rows of the comparison: heading, column, formatter."""

    def write(error: float) -> str:
        return f"{error:.2e}"

    for number, (output, column) in enumerate(operation.error_columns.items()):
        yield ("error" if number == 0 else f"error of {output}"), column, write
        if number == 0:
            yield "  allowed", "error_bound", write
    yield from _MEASURES


def _cells(
    operation: Operation, rows: Sequence[Row], column: str, write: Callable[[Any], str]
) -> tuple[str, ...] | None:
    """Formats a column; None if it contains no information."""
    values = [row[column] for row in rows]
    cells = tuple("" if value is None else write(value) for value in values)
    if column in operation.error_columns.values():
        # In a checked run that was found wrong, an output without an error is not finite.
        cells = tuple(
            cell or ("" if row["error_bound"] is None or row["passed"] else "not finite")
            for cell, row in zip(cells, rows, strict=True)
        )
        return cells if any(cells) else None
    is_empty = all(value is None for value in values)
    return None if is_empty or (column != "conflicts" and not any(values)) else cells


def _reductions(comparison: Comparison, ladder: Ladder, rows: Sequence[Row]) -> Iterator[Measure]:
    """Yields the reduction of conflicts against the rung before, named unless it is just to the left."""
    reductions = tuple(_reduction(row, comparison.rows, ladder) for row in rows)
    if not any(reductions):
        return
    yield Measure("  fewer than before", reductions)
    befores = tuple(
        _before(row, ladder) if fewer else "" for row, fewer in zip(rows, reductions, strict=True)
    )
    left = ["", *(row["stage"] for row in rows)]
    if any(before and before != beside for before, beside in zip(befores, left, strict=False)):
        yield Measure("  which is", befores)


def _spread(comparison: Comparison, row: Row) -> str:
    timed = comparison.timings.get(row["stage"])
    return "" if timed is None else f"{timed.p10_ms:.3f}-{timed.p90_ms:.3f}"


def _share_of(comparison: Comparison, row: Row, name: str) -> str:
    """The row's speed as a multiple of torch's on the same dtype."""
    speed = comparison.baselines.get(row["dtype"], {}).get(name)
    return "" if speed is None or row["tflops"] is None else f"{row['tflops'] / speed:.2f}"


def _before(row: Row, ladder: Ladder) -> str:
    """The rung that a row's rung is compared with; "" for the first."""
    return next((stage.before or "" for stage in ladder if stage.name == row["stage"]), "")


def _reduction(row: Row, rows: Sequence[Row], ladder: Ladder) -> str:
    before = _before(row, ladder)
    below = next((other for other in rows if other["stage"] == before), None)
    if below is None or not below["conflicts"] or row["conflicts"] is None:
        return ""
    return f"{1 - row['conflicts'] / below['conflicts']:.2%}"
