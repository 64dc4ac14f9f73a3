#!/usr/bin/env python3
"""Asks the verdicts about the wrong rungs of tests/run/evaluation/wrong_rungs.toml. It takes no GPU.

    python -m tools.measure.judge_wrong_rungs [NAME ...] [--csv results/wrong_rungs.csv]

A row says which default should find the rung (`check`, or `results` of the matrix), whether it does, and what
it says first. The file is written after each rung. Without names, the rungs that have no row yet are judged.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from datetime import date
from pathlib import Path

from ladder.common import files
from ladder.compile import pinned_nvcc

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "run" / "evaluation"))
from test_wrong_rungs import WrongRung, wrong_rungs

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("name", "stage", "by", "outcome", "says", "nvcc", "date")


def judge(rung: WrongRung) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        found = rung.findings(rung.write(Path(folder)))
    said = [text.replace(f"{folder}/", "").replace(f"{ROOT}/", "") for text in found]
    fitting = [text for text in said if rung.says in text]
    return {
        "name": rung.name,
        "stage": rung.stage,
        "by": rung.found_by,
        "outcome": "found" if fitting else "not found",
        "says": next(iter(fitting or said), "").partition("\n")[0],
        "nvcc": pinned_nvcc().version,
        "date": date.today().isoformat(),
    }


def read(path: Path) -> dict[str, dict[str, str]]:
    """The rows of the file, by name."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all without a row")
    parser.add_argument("--csv", type=Path, default=ROOT / "results" / "wrong_rungs.csv")
    options = parser.parse_args(words)
    files.require_target(options.csv)
    rungs = {rung.name: rung for rung in wrong_rungs()}
    if unknown := sorted({*options.names} - {*rungs}):
        parser.error(f"no wrong rung has the name {', '.join(unknown)}")
    known = {name: row for name, row in read(options.csv).items() if name in rungs}
    for name in options.names or [name for name in rungs if name not in known]:
        known[name] = judge(rungs[name])
        print(f"{name}: {known[name]['outcome']}", flush=True)
        write(options.csv, [known[name] for name in rungs if name in known])
    missed = [name for name, row in known.items() if row["outcome"] != "found"]
    print(f"{len(known)} of {len(rungs)} wrong rungs judged, {len(missed)} not found", *missed)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
