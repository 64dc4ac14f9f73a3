"""Counts beside the source: what each line of a kernel, or of a helper that it calls, costs.

An instruction belongs to two lines: the one that holds it, which may be in a helper, and the kernel's own
line through which it got there. :func:`annotate` shows both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ladder.emulator import COUNTERS

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
    def touches_shared_memory(self) -> bool:
        """Whether it makes an access that the hardware's counters of shared memory see or may see."""
        return self.wavefronts != 0 or bool(self.counters.get("conflicts_atom", 0)) or self.conflicts is None

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

    def listing(self) -> Iterator[tuple[int, str, LineCounts | None]]:
        """(number, text, counts) of every line."""
        for number, text in enumerate(self.lines, start=1):
            yield number, text, self.counts.get(number)


def line_table(launches: Iterable[Launch]) -> pd.DataFrame:
    """One row a source line, summed over launches: :data:`PLACE` and :data:`VALUES`."""
    frames = [launch.lines() for launch in launches]
    values = list(VALUES)
    if not frames:
        return pd.DataFrame(columns=[*PLACE, *VALUES])
    frame = pd.concat(frames, ignore_index=True)[[*PLACE, *values]]
    grouped = frame.groupby(list(PLACE), sort=True, dropna=False)
    # An unknown count makes the sum unknown: sum() would take it for 0.
    total = grouped[values].sum(min_count=1)
    opened = grouped[values].agg(lambda column: bool(column.isna().any()))
    return total.mask(opened.astype(bool)).astype("Int64").reset_index()


def by_kernel_line(table: pd.DataFrame) -> list[SourceFile]:
    """Counts at the kernel's own lines; what a helper does counts for the line that called it."""
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
    """A share of a line's cost, and the other line that it also belongs to."""

    path: Path
    number: int
    text: str
    counts: LineCounts


@dataclass(frozen=True)
class Line:
    """One line of source with what it costs; ``counts`` is None where no shared memory is accessed.

    ``is_helper`` tells a line of an inlined function from the kernel's own: its cost is part of that of the
    kernel lines that call it, which are its ``parts``. The parts of a kernel's line are the helper lines.
    """

    number: int
    text: str
    counts: LineCounts | None = None
    is_helper: bool = False
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A source file, every line of it."""

    path: Path
    lines: tuple[Line, ...]

    def near(self, context: int | None) -> Iterator[Line | None]:
        """The lines within ``context`` of one that costs something, None for a gap; all lines for None, or
        where none costs anything."""
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
    """The kernel's file and all others in which shared memory is accessed, and the total over the kernel."""

    files: tuple[Listing, ...]
    total: LineCounts

    def wavefront_share(self, counts: LineCounts) -> float | None:
        """The part of all wavefronts that these are; None where there are none or the model does not know."""
        return _share(counts.wavefronts, self.total.wavefronts)

    def conflict_share(self, counts: LineCounts) -> float | None:
        """The part of all conflicts that these are, likewise."""
        return _share(counts.conflicts, self.total.conflicts)


def annotate(table: pd.DataFrame) -> Annotated:
    """The sources of a :func:`line_table` with the cost of every line that accesses shared memory."""
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
