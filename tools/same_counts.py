#!/usr/bin/env python3
"""Compares the counts of two runs of ``ladder compare --json``: does a change of the rungs leave them equal?

    python tools/same_counts.py BEFORE.json AFTER.json

Rungs that became part of another one, ``FOLDED`` in ladder/stages/renamed.py, are compared under the name of
the rung that has their kernel. Prints each difference; the exit code is 1 if there is one, also if a row of
BEFORE has no counterpart, and 2 if a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ladder.run.emulator import COUNTERS
from ladder.stages import FOLDED, GONE

Row = Mapping[str, Any]
Key = tuple[tuple[str, str], ...]

#: Columns that neither count nor say which problem was counted.
_RESULTS = {"error", "error_bound", "passed", "lse_error", "time_ms", "tflops"}


def under_names_of_today(rows: Iterable[Row], folded: Mapping[str, str] = FOLDED) -> list[Row]:
    """The rows whose kernel a rung has today, by that rung's name. Rows that bear today's names stay, unless
    a folded rung's kernel has replaced theirs.
    """
    rows = list(rows)
    kernels = {name: today for name, today in folded.items() if name not in GONE}
    replaced = {kernels[str(row["stage"])] for row in rows if row["stage"] in kernels}
    return [
        {**row, "stage": kernels.get(str(row["stage"]), row["stage"])}
        for row in rows
        if row["stage"] not in GONE and row["stage"] not in replaced
    ]


def differences(before: Iterable[Row], after: Iterable[Row]) -> list[str]:
    """A line for each counter that differs, and for each row of ``before`` that ``after`` lacks."""
    now = {_key(row): row for row in under_names_of_today(after)}
    found = []
    for row in under_names_of_today(before):
        other = now.get(_key(row))
        problem = " ".join(f"{column}={value}" for column, value in _key(row) if column != "stage")
        name = f"{row['stage']}, {problem}"
        if other is None:
            found.append(f"{name}: no such row any more")
            continue
        found += [
            f"{name}: {column} was {row.get(column)}, is {other.get(column)}"
            for column in COUNTERS
            if row.get(column) != other.get(column)
        ]
    return found


def _key(row: Row) -> Key:
    """The rung and the problem: all columns that say something, except the results."""
    others = {*COUNTERS, *_RESULTS}
    return tuple(
        (name, str(value)) for name, value in sorted(row.items()) if name not in others and value is not None
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    try:
        before, after = (json.loads(path.read_text()) for path in (options.before, options.after))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = differences(before, after)
    print("\n".join(found) or f"{len(under_names_of_today(before))} rows: all counts are equal")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
