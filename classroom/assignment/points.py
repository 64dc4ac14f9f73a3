#!/usr/bin/env python3
"""The points of the assignment that follow from counts: python points.py grades.csv board.csv [--csv FILE].

``grades.csv`` is what ``ladder class grade`` wrote for week 1, ``board.csv`` what ``ladder class board``
wrote for week 2.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

EXERCISES = (
    *("v1_rescale", "v1_causal_mask", "v1_kv_head", "v1_lse"),
    *("v1_column_major", "v2_row_max", "v2_ldmatrix_k", "v3_xor"),
)
PER_EXERCISE = 5
RIGHT = 20
#: Points by the largest count that earns them.
LIMITS: dict[str, dict[int, int]] = {
    "sectors": {12_400: 10, 18_500: 5},
    "wavefronts": {19_600: 10, 21_500: 5},
}
COLUMNS = ("student", "exercises", "right", *LIMITS, "sum")

Row = Mapping[str, str]


def points(grades: Iterable[Row], board: Iterable[Row]) -> list[dict[str, object]]:
    """A row of :data:`COLUMNS` per student who is in either file. Only attention's default problem counts."""
    solved = {(row["student"], row["exercise"]) for row in grades if row["solved"] == "yes"}
    rungs = {row["student"]: row for row in board}
    students = sorted({student for student, _ in solved} | set(rungs))
    return [_row(student, solved, rungs.get(student)) for student in students]


def _row(student: str, solved: set[tuple[str, str]], rung: Row | None) -> dict[str, object]:
    is_right = rung is not None and rung["rank"] != "" and rung["computes"] == "attention"
    found: dict[str, int] = {
        "exercises": PER_EXERCISE * sum((student, name) in solved for name in EXERCISES),
        "right": RIGHT if is_right else 0,
    }
    for count, limits in LIMITS.items():
        found[count] = _earned(int(rung[count]), limits) if rung is not None and is_right else 0
    return {"student": student, **found, "sum": sum(found.values())}


def _earned(count: int, limits: Mapping[int, int]) -> int:
    return max((given for most, given in limits.items() if count <= most), default=0)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The points of the assignment that follow from counts.")
    parser.add_argument("grades", type=Path, help="grades.csv of week 1")
    parser.add_argument("board", type=Path, help="board.csv of week 2")
    parser.add_argument("--csv", type=Path, default=Path("points.csv"), metavar="FILE", help="(points.csv)")
    options = parser.parse_args(arguments)
    tables = []
    for path in (options.grades, options.board):
        try:
            with path.open(encoding="utf-8", newline="") as file:
                tables.append(list(csv.DictReader(file)))
        except OSError as error:
            parser.error(f"{path} cannot be read: {error.strerror}")
    for table, path, needed in ((tables[0], options.grades, "solved"), (tables[1], options.board, "rank")):
        if table and needed not in table[0]:
            parser.error(f"{path} has no column {needed}: the first file is that of `ladder class grade`")
    with options.csv.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(points(*tables))
    print(f"wrote {options.csv}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
