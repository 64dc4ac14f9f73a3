"""Counts beside the source: the cost of each line of a kernel and of the helpers it calls.

An instruction belongs to two lines: its own, which may be in a helper, and the kernel line that the helper
was inlined into. :func:`annotate` shows both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ladder.run.emulator import COUNTERS

if TYPE_CHECKING:
    from ladder.run.emulator import Launch

#: The key of the line table: the line of the instruction, and the kernel line it was inlined into (the same
#: line unless it comes from a helper).
PLACE = ("file", "line", "kernel_file", "kernel_line")

#: The values of each line: the table's counters, and the wavefronts that its accesses need at best.
VALUES = ("executed", *COUNTERS, "ideal_ld", "ideal_st")


@dataclass(frozen=True)
class LineCounts:
    """The cost of one line over all launches; a count that the model does not know is None."""

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
    def touches_shared_memory(self) -> bool:
        """Whether it makes accesses that the hardware's shared-memory counters see or may see."""
        return self.wavefronts != 0 or bool(self.counters.get("conflicts_atom", 0)) or self.conflicts is None

    @property
    def ideal(self) -> int | None:
        """The wavefronts that its distinct bytes would fill, at 128 bytes each."""
        return _sum(self.counters.get("ideal_ld"), self.counters.get("ideal_st"))


@dataclass(frozen=True)
class SourceFile:
    """A source file with counts beside some of its lines."""

    path: Path
    lines: tuple[str, ...]
    counts: Mapping[int, LineCounts]

    def listing(self) -> Iterator[tuple[int, str, LineCounts | None]]:
        """Yields (number, text, counts) of every line."""
        for number, text in enumerate(self.lines, start=1):
            yield number, text, self.counts.get(number)


def line_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row per source line, summed over launches, with the columns :data:`PLACE` and :data:`VALUES`."""
    frames = [launch.lines() for launch in launches]
    values = list(VALUES)
    if not frames:
        return pd.DataFrame(columns=[*PLACE, *VALUES])
    frame = pd.concat(frames, ignore_index=True)[[*PLACE, *values]]
    grouped = frame.groupby(list(PLACE), sort=True, dropna=False)
    # An unknown count makes the sum unknown, whereas sum() alone would treat it as 0.
    total = grouped[values].sum(min_count=1)
    opened = grouped[values].agg(lambda column: bool(column.isna().any()))
    return total.mask(opened.astype(bool)).astype("Int64").reset_index()


def by_kernel_line(table: pd.DataFrame) -> list[SourceFile]:
    """Attributes all counts to the kernel's own lines: a helper's to the line that called it."""
    files = []
    for name, rows in table.groupby("kernel_file", sort=False):
        path = Path(str(name))
        counts = {}
        for line, same_line in rows.groupby("kernel_line"):
            counts[int(str(line))] = LineCounts({column: _total(same_line[column]) for column in VALUES})
        files.append(SourceFile(path, _read(path), counts))
    return files


@dataclass(frozen=True)
class Part:
    """A part of a line's cost, and the other line that it is also attributed to."""

    path: Path
    number: int
    text: str
    counts: LineCounts


@dataclass(frozen=True)
class Line:
    """One source line with its cost; ``counts`` is None if it does not access shared memory.

    ``is_helper`` marks a line of an inlined function: its cost is part of the cost of the kernel lines that
    call it, which are its ``parts``. The parts of a kernel line are the helper lines that it calls.
    """

    number: int
    text: str
    counts: LineCounts | None = None
    is_helper: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Listing:
    """Every line of a source file."""

    path: Path
    lines: tuple[Line, ...]

    def near(self, context: int | None) -> Iterator[Line | None]:
        """Yields the lines within ``context`` of a line with a cost, and None for each gap. Yields all lines
        if ``context`` is None or no line has a cost.
        """
        counted = [line.number for line in self.lines if line.counts is not None]
        previous = 0
        for line in self.lines:
            is_far = all(abs(line.number - number) > (context or 0) for number in counted)
            if context is not None and counted and is_far:
                continue
            if previous and line.number > previous + 1:
                yield None
            previous = line.number
            yield line


@dataclass(frozen=True)
class Annotated:
    """The kernel's file, all other files that access shared memory, and the kernel's totals."""

    files: tuple[Listing, ...]
    total: LineCounts

    def wavefront_share(self, counts: LineCounts) -> float | None:
        """The share of all wavefronts that ``counts`` has; None if there are none or it is unknown."""
        return _share(counts.wavefronts, self.total.wavefronts)

    def conflict_share(self, counts: LineCounts) -> float | None:
        """The share of all conflicts that ``counts`` has; None if there are none or it is unknown."""
        return _share(counts.conflicts, self.total.conflicts)


def annotate(table: pd.DataFrame) -> Annotated:
    """Annotates a :func:`line_table`'s sources with the cost of each line that accesses shared memory."""
    rows = [_Row(row) for row in table.to_dict("records")]
    total = LineCounts({name: _total(table[name]) for name in VALUES})
    kernel_files = [row.kernel[0] for row in rows]
    rows = [row for row in rows if row.counts.touches_shared_memory]
    paths = dict.fromkeys([*kernel_files, *(row.place[0] for row in rows)])
    sources = {path: _read(path) for path in paths}

    def part(place: tuple[Path, int], same: Iterable[_Row]) -> Part:
        path, number = place
        text = sources[path][number - 1].strip() if 0 < number <= len(sources[path]) else ""
        return Part(path, number, text, _add(row.counts for row in same))

    def line(path: Path, number: int, text: str) -> Line:
        place = (path, number)
        called = [row for row in rows if row.kernel == place]
        if called:
            helpers = sorted({row.place for row in called if row.place != place})
            parts = [part(other, [row for row in called if row.place == other]) for other in helpers]
            return Line(number, text, _add(row.counts for row in called), False, _sorted(parts))
        held = [row for row in rows if row.place == place]
        if not held:
            return Line(number, text)
        callers = sorted({row.kernel for row in held})
        parts = [part(other, [row for row in held if row.kernel == other]) for other in callers]
        return Line(number, text, _add(row.counts for row in held), True, _sorted(parts))

    files = [
        Listing(path, tuple(line(path, number, text) for number, text in enumerate(sources[path], start=1)))
        for path in paths
    ]
    return Annotated(tuple(files), total)


class _Row:
    """A row of the line table."""

    def __init__(self, row: Mapping[Hashable, Any]) -> None:
        self.place = (Path(str(row["file"])), int(row["line"]))
        self.kernel = (Path(str(row["kernel_file"])), int(row["kernel_line"]))
        self.counts = LineCounts({name: None if pd.isna(row[name]) else int(row[name]) for name in VALUES})


def _sorted(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: -(part.counts.wavefronts or 0)))


def _add(counts: Iterable[LineCounts]) -> LineCounts:
    rows = list(counts)
    return LineCounts({name: _sum(*(row.counters[name] for row in rows)) for name in VALUES})


def _share(value: int | None, total: int | None) -> float | None:
    return None if value is None or not total else value / total


def _read(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(errors="replace").splitlines()) if path.is_file() else ()


def _total(column: pd.Series) -> int | None:
    return None if column.isna().any() else int(column.sum())


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
