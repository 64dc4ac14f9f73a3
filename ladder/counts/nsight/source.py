"""Reads the source page: per launch, one row for each SASS instruction, with its line of CUDA."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd

from ladder.counts.nsight.cells import number, read_text, require_whole
from ladder.counts.nsight.ncu import check_messages, why_empty
from ladder.errors import LadderError

#: The columns of :func:`read_source`, and their names on the source pages of several versions of ncu.
SOURCE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "executed": ("Instructions Executed", "inst_executed"),
    "wavefronts": ("L1 Wavefronts Shared", "memory_l1_wavefronts_shared"),
    "ideal": ("L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal"),
    "sectors": ("L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"),
}


def read_source(source: str | Path, launches: int | None = None) -> pd.DataFrame:
    """Reads the source page of ``--print-source sass`` or ``cuda,sass``: one row per SASS instruction.

    Columns: ``launch`` (0, 1, ... in page order), ``kernel``, ``instruction`` (its index in the kernel),
    ``sass``, ``opcode`` (without modifiers), ``file`` and ``line`` (<NA> on a page of SASS only), those of
    :data:`SOURCE_COLUMNS` (<NA> if ncu has no value), then ncu's own. On a page by CUDA line, an inlined
    instruction has one row for each line of its inlining chain, all with the same ``instruction``.

    ncu prints some reports of several launches with every table twice. ``launches`` is the true number of
    launches; without it, a page in which an exact copy follows each table is taken for such a report.

    Raises :class:`LadderError`.
    """
    text = read_text(source)
    check_messages(text)
    tables = _in_launches(_undoubled(list(_source_tables(text)), launches), launches)
    frames = [_source_frame(number, launch) for number, launch in enumerate(tables)]
    if not frames:
        raise LadderError("there is no source page of Nsight Compute in this text", _why_no_source(text))
    page = pd.concat(frames, ignore_index=True)
    if page.empty:
        raise LadderError("this page has no instruction: it was cut off", "Export it again.")
    return page


def source_lines(source: pd.DataFrame) -> pd.DataFrame:
    """Sums the rows of :func:`read_source` to one row per launch and line of CUDA.

    Columns: ``launch``, ``kernel``, ``file``, ``line``, ``executed``, ``wavefronts``, ``ideal``. The last two
    exclude copies from global to shared memory (LDGSTS), as the hardware's shared-memory counters do. An
    inlined instruction counts for each line of its inlining chain.
    """
    known = source[source["line"].notna()].copy()
    known.loc[known["opcode"] == "LDGSTS", ["wavefronts", "ideal"]] = 0
    places = known.groupby(["launch", "kernel", "file", "line"], sort=True, observed=True)
    return places[["executed", "wavefronts", "ideal"]].sum(min_count=1).reset_index()


def opcode(sass: str) -> str:
    """Extracts ``LDSM`` from ``@!P0 LDSM.16.M88.4 R4, [R8]``; "" for a line without an instruction."""
    match = re.match(r"(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", sass)
    return match[1] if match else ""


@dataclass(frozen=True)
class _SourceTable:
    """A table of the page, for a launch or for a launch and a source file; rows come with their line."""

    kernel: str
    file: str
    header: tuple[str, ...]
    rows: list[tuple[str, tuple[str, ...]]]


def _source_tables(text: str) -> Iterable[_SourceTable]:
    """Splits the page into tables. ncu does not escape quotes in lines of CUDA, so only the number is read
    from such a row; the instructions below it have their own counts.
    """
    kernel, file, number, table = "", "", "", None
    for line in text.splitlines():
        if line.startswith("==") or not line.strip():
            continue
        title = re.match(r'"?(Kernel Name|Function Name|File Path|File Name)"?,', line)
        if title:
            if table is not None:
                yield table
            table, value = None, next(csv.reader([line]))[1]
            if title[1] == "File Path":
                file = value
            elif title[1] == "File Name":
                kernel, file = "", value
            else:
                kernel, file = value, file if title[1] == "Function Name" else ""
        elif re.match(r'("?#"?,|"?Line No"?,"?Source"?,)?("?Address"?,)?"?Source"?,', line):
            if table is not None:
                yield table
            table = _SourceTable(kernel, file, tuple(next(csv.reader([line]))), [])
        elif table is not None and table.header[0] != "Line No":
            cells = next(csv.reader([line]))
            require_whole(line, cells, table.header)
            table.rows.append(("", tuple(cells)))
        elif table is not None and line.startswith('"","",'):
            cells = next(csv.reader([line]))
            require_whole(line, cells, table.header)
            if cells[2] != "...":
                table.rows.append((number, tuple(cells)))
        elif table is not None and (marked := re.match(r'"(\d+)",', line)):
            number = marked[1]
    if table is not None:
        yield table


_Item = TypeVar("_Item")


def _undoubled(items: list[_Item], launches: int | None) -> list[_Item]:
    """Drops the copies if each item is followed by its copy."""
    doubled = len(items) % 2 == 0 and all(items[i] == items[i + 1] for i in range(0, len(items), 2))
    if launches is None:
        doubled &= len(items) >= 4  # no page of a single launch has been seen doubled
    else:
        doubled &= len(items) > launches
    return items[::2] if doubled else items


def _in_launches(tables: list[_SourceTable], launches: int | None) -> list[list[_SourceTable]]:
    """Groups the tables by launch: a page by CUDA line has one table per source file."""
    found: list[list[_SourceTable]] = []
    for table in tables:
        same = found and table.file and found[-1][0].kernel == table.kernel
        if same and table.file not in [other.file for other in found[-1]]:
            found[-1].append(table)
        else:
            found.append([table])
    return _undoubled(found, launches)


def _source_frame(launch: int, tables: list[_SourceTable]) -> pd.DataFrame:
    """Builds the rows of one launch."""
    frames: list[pd.DataFrame] = []
    for table in tables:
        # In a table by CUDA line, the first two columns describe the line and are empty for an instruction.
        first = 2 if table.header[0] == "Line No" else 0
        names = _unique(table.header[first:])
        frame = pd.DataFrame([cells[first:] for _, cells in table.rows], columns=names, dtype="string")
        place = pd.DataFrame({"launch": launch, "kernel": table.kernel}, index=frame.index)
        place["instruction"] = range(len(frame))
        place["sass"] = frame["Source"].str.strip()
        place["opcode"] = place["sass"].map(opcode)
        place["file"] = pd.array([table.file or pd.NA] * len(frame), dtype="string")
        place["line"] = pd.array([int(n) if n else pd.NA for n, _ in table.rows], dtype="Int64")
        for name, spellings in SOURCE_COLUMNS.items():
            found = next((spelling for spelling in spellings if spelling in frame.columns), None)
            cells = [number(cell) if found else None for cell in frame[found or "Source"]]
            place[name] = pd.Series(cells, dtype="Float64").round().astype("Int64")
        others = [name for name in frame.columns if name not in ("Source", *place.columns)]
        frames.append(pd.concat([place, frame[others]], axis=1))
    rows = pd.concat(frames, ignore_index=True)
    if "Address" in rows.columns and len(frames) > 1:
        rows["instruction"] = (
            rows["Address"].map(lambda text: int(text, 16)).rank(method="dense").astype(int) - 1
        )
        rows = rows.sort_values("instruction", kind="stable", ignore_index=True)
    return rows


def _unique(names: Sequence[str]) -> list[str]:
    """Numbers repeated names, as pandas does: ncu may use one column name twice."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        result.append(f"{name}.{seen[name]}" if seen[name] else name)
    return result


def _why_no_source(text: str) -> str:
    if "No kernels were profiled" in text:
        return why_empty(text)
    return "It is printed by ncu --csv --page source --print-source cuda,sass (or sass)."
