"""Counts beside the source: which line of a kernel, or of a helper it calls, costs what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ladder.table import COUNTERS

if TYPE_CHECKING:
    from ladder.emulator import Launch

#: What identifies a row of the line table: the line that holds the instruction, and the kernel's line that
#: called it (the same line unless a helper was inlined).
PLACE = ("file", "line", "kernel_file", "kernel_line")

#: What is counted for each line: the table's counters, and what the accesses would need at best.
VALUES = ("executed", *COUNTERS, "ideal_ld", "ideal_st")


@dataclass(frozen=True)
class LineCounts:
    """What one line cost over all launches; a count that the model leaves open is None."""

    counters: Mapping[str, int | None]

    @property
    def executed(self) -> int | None:
        return self.counters.get("executed")

    @property
    def wavefronts(self) -> int | None:
        return _sum(self.counters.get("wavefronts_ld"), self.counters.get("wavefronts_st"))

    @property
    def conflicts(self) -> int | None:
        return self.counters.get("conflicts")

    @property
    def ideal(self) -> int | None:
        """The wavefronts that the distinct bytes alone would need, 128 a wavefront."""
        return _sum(self.counters.get("ideal_ld"), self.counters.get("ideal_st"))


@dataclass(frozen=True)
class SourceFile:
    """A source file with counts beside some of its lines."""

    path: Path
    lines: tuple[str, ...]
    counts: Mapping[int, LineCounts]

    def listing(self, context: int | None = None) -> Iterator[tuple[int, str, LineCounts | None]]:
        """(number, text, counts) of every line, or of those within ``context`` lines of one with counts."""
        for number, text in enumerate(self.lines, start=1):
            if context is None or any(abs(number - counted) <= context for counted in self.counts):
                yield number, text, self.counts.get(number)


def line_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row a source line, summed over launches: :data:`PLACE` and :data:`VALUES`."""
    frames = [launch.lines() for launch in launches]
    values = list(VALUES)
    if not frames:
        return pd.DataFrame(columns=[*PLACE, *VALUES])
    frame = pd.concat(frames, ignore_index=True)[[*PLACE, *values]]
    grouped = frame.groupby(list(PLACE), sort=True, dropna=False)
    # An open count leaves the sum open: sum() alone would read it as 0.
    total = grouped[values].sum(min_count=1)
    opened = grouped[values].agg(lambda column: bool(column.isna().any()))
    return total.mask(opened.astype(bool)).astype("Int64").reset_index()


def by_helper_line(table: pd.DataFrame) -> list[SourceFile]:
    """Counts at the lines that hold the instructions."""
    return _annotate(table, "file", "line")


def by_kernel_line(table: pd.DataFrame) -> list[SourceFile]:
    """Counts at the kernel's own lines; what a helper does counts for the line that called it."""
    return _annotate(table, "kernel_file", "kernel_line")


def _annotate(table: pd.DataFrame, file_column: str, line_column: str) -> list[SourceFile]:
    files = []
    for name, rows in table.groupby(file_column, sort=False):
        path = Path(str(name))
        counts = {}
        for line, same_line in rows.groupby(line_column):
            counters = {column: _total(same_line[column]) for column in VALUES}
            counts[int(str(line))] = LineCounts(counters)
        text = path.read_text(errors="replace").splitlines() if path.is_file() else []
        files.append(SourceFile(path, tuple(text), counts))
    return files


def _total(column: pd.Series) -> int | None:
    return None if column.isna().any() else int(column.sum())


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
