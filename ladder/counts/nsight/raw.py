"""Reads the raw page: one row per kernel launch.

The page has a header row, a row of units, and then the launches. Lines of noise (``==PROF== ...``) and the
program's own output surround them. Numbers have thousands separators, and ncu scales units at will (Kbyte,
usecond).
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.counts.nsight.cells import number, read_text, require_whole
from ladder.counts.nsight.metrics import metric_names
from ladder.counts.nsight.ncu import check_messages, why_empty
from ladder.errors import LadderError

# Columns of the raw page that are not metrics.
_TEXT_COLUMNS = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
    "Block Size", "Grid Size", "Device", "CC", "Section Name", "Rule Name", "Rule Type", "Rule Description",
}  # fmt: skip

_SIZES = ("Block Size", "Grid Size")

_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# In the spellings of old and new versions of ncu; each may have a prefix.
_BASE_UNITS = {"byte": "byte", "second": "second", "s": "second", "hz": "hz", "Hz": "hz"}


def read_raw(source: str | Path) -> pd.DataFrame:
    """Reads a raw page: one row per launch, metrics as floats in base units.

    Base units are byte, second, hz and their quotients, without prefixes; ``attrs["units"]`` maps each metric
    to its unit. A metric that a launch lacks is NaN. ``source`` is the text or a file. The long form that
    older versions print (one row per metric) gives the same frame.

    Raises :class:`LadderError`.
    """
    text = read_text(source)
    check_messages(text)
    header, rows = _table(text)
    if "Metric Name" in header:
        header, units, rows = _widen(header, rows)
    else:
        has_units = bool(rows) and not rows[0][0].strip()
        units = dict(zip(header, rows[0], strict=True)) if has_units else dict.fromkeys(header, "")
        rows = rows[1:] if has_units else rows
    if not rows:
        raise LadderError(
            "this table of Nsight Compute has no launch: it was cut off, or nothing was profiled"
        )
    columns: dict[str, Any] = {}
    base_units: dict[str, str] = {}
    for index, name in enumerate(header):
        cells = [row[index] for row in rows]
        values = None if name in _TEXT_COLUMNS or "Range:" in name else [number(cell) for cell in cells]
        # A launch attribute such as "CachePreferNone" is text; an empty column is a missing metric.
        if values is None or any(value is None for value in values):
            if name in metric_names():
                bad = cells[values.index(None)] if values else ""
                raise LadderError(f"{bad!r} is no number; it stands under {name}", "Export the page again.")
            if name in _SIZES and (bad := next(filter(_is_no_size, cells), "")):
                raise LadderError(f"{bad!r} is no {name.lower()}", "Export the page again.")
            columns[name] = pd.Series(cells, dtype="object")
            continue
        factor, base_units[name] = base_unit(units[name])
        columns[name] = pd.Series(values, dtype="float64") * factor
    frame = pd.DataFrame(columns)
    frame.attrs["units"] = base_units
    return frame


def _is_no_size(cell: str) -> bool:
    return bool(cell) and not re.fullmatch(r"\(\s*\d+,\s*\d+,\s*\d+\)", cell)


def ranges(raw: pd.DataFrame, pattern: str) -> pd.Series:
    """Matches ``pattern`` against each launch's NVTX ranges; returns its first group, or None."""
    expression = re.compile(pattern)
    columns = [name for name in raw.columns if "Range" in name]

    def find(row: pd.Series) -> str | None:
        found = (expression.search(str(row[name])) for name in columns)
        return next((match[1] for match in found if match), None)

    return pd.Series([find(row) for _, row in raw.iterrows()], index=raw.index, dtype="object")


def _table(text: str) -> tuple[list[str], list[list[str]]]:
    """Extracts the CSV's header and rows from the output of ncu and the program. Successive tables of several
    runs are joined if they have the same columns.
    """
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(r'"?ID"?,', line)]
    if not starts:
        raise LadderError("there is no table of Nsight Compute in this text", why_empty(text))
    header: list[str] = []
    rows: list[list[str]] = []
    for line in lines[starts[0] :]:
        if line.startswith("=="):
            continue
        row = next(csv.reader([line]), [""])
        if row[:1] == ["ID"]:
            if header and row != header:
                raise LadderError("this text holds two tables of Nsight Compute with different columns")
            repeated = bool(header)
            header = row
            continue
        if re.match(r'"\d+",', line):
            require_whole(line, row, header)
        if len(row) != len(header) or not (row[0].strip().isdigit() or not row[0].strip()):
            continue  # printed by the program
        if not row[0].strip() and (repeated or rows):
            continue  # the units of a second table
        rows.append(row)
    return header, rows


def _widen(header: list[str], rows: list[list[str]]) -> tuple[list[str], dict[str, str], list[list[str]]]:
    """Converts one row per metric to one row per launch."""
    fixed = [name for name in header if name not in ("Metric Name", "Metric Unit", "Metric Value")]
    launches: dict[str, dict[str, str]] = {}
    units = dict.fromkeys(fixed, "")
    for row in rows:
        cells = dict(zip(header, row, strict=True))
        launch = launches.setdefault(cells["ID"], {name: cells[name] for name in fixed})
        metric = cells["Metric Name"]
        factor, unit = base_unit(cells.get("Metric Unit", ""))
        value = number(cells["Metric Value"])
        launch[metric] = cells["Metric Value"] if value is None else repr(value * factor)
        units[metric] = unit
    return list(units), units, [[launch.get(name, "") for name in units] for launch in launches.values()]


def base_unit(unit: str) -> tuple[float, str]:
    """The factor to the base unit, and the base unit: "Kbyte/usecond" -> (1e9, "byte/second")."""
    numerator, _, denominator = unit.strip().partition("/")
    factor, name = _without_prefix(numerator)
    if not denominator:
        return factor, name
    divisor, per = _without_prefix(denominator)
    return factor / divisor, f"{name}/{per}"


def _without_prefix(unit: str) -> tuple[float, str]:
    for base, name in _BASE_UNITS.items():
        prefix = unit.removesuffix(base)
        if unit.endswith(base) and prefix in _PREFIXES:
            return _PREFIXES[prefix], name
    return 1.0, unit
