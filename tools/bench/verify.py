"""Whether ``ladder verify`` refuses wrong candidates and passes right ones: a row per candidate.

    python -m tools.bench verify                       # those of tests/data/verify that the table lacks
    python -m tools.bench verify --only softmax        # those whose names contain the word
    python -m tools.bench verify --cases DIR/cases.toml --csv mine.csv

A file of cases has tables ``candidates``: ``reference``, ``source``, ``right``, a list of names, ``wrong``, a
table of names with what is wrong, and optionally ``with``, ``shrink`` and ``seconds``. If ``source`` is a
``.cu``, a name is a kernel, with ``launch`` and what ``launches`` has for it. If it is a folder, a name
is a module in it, with the text of ``prelude`` before it. Paths start at the file's folder.

A row is written as soon as it is known, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.call.torch import NOT_JUDGED, RIGHT, WRONG, Launch, Limits, Verdict, launch_of, verify
from ladder.errors import LadderError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "verify" / "cases.toml"
TABLE = ROOT / "results" / "verify.csv"
COLUMNS = ("case", "expected", "verdict", "reason", "seconds", "fault", "source")


@dataclass(frozen=True)
class Case:
    """A candidate, with what is wrong with it; "" for a right one. ``source`` is where others publish it."""

    name: str
    fault: str
    source: str
    candidate: Path
    reference: Path
    launch: Launch | None
    shapes: Sequence[Mapping[str, int]]
    shrink: bool
    prelude: Path | None
    seconds: float

    @property
    def expected(self) -> str:
        return WRONG if self.fault else RIGHT

    def verdict(self) -> Verdict:
        """What the judge says of it; a candidate with a prelude is judged as one file with that."""
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            candidate = self.candidate
            if self.prelude:
                candidate = Path(folder) / self.candidate.name
                candidate.write_text(self.prelude.read_text() + self.candidate.read_text())
            return verify(
                candidate,
                self.reference,
                launch=self.launch,
                shapes=self.shapes,
                shrink=self.shrink,
                limits=Limits(seconds=self.seconds),
            )


def read_cases(file: Path) -> list[Case]:
    """The cases of a file, in its order. Raises :class:`LadderError` for a launch that is none."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))["candidates"]
    return [case for table in tables for case in _cases(table, file.parent)]


def _cases(table: Mapping[str, Any], folder: Path) -> Iterator[Case]:
    source = folder / table["source"]
    faults = {**dict.fromkeys(table.get("right", []), ""), **table.get("wrong", {})}
    for name, fault in faults.items():
        launch = {**table["launch"], **table.get("launches", {}).get(name, {})} if "launch" in table else None
        if launch is not None and "function" not in launch:
            launch.setdefault("kernel", name)
        yield Case(
            name=f"{source.stem}.{name}",
            fault=fault,
            source=table.get("published", ""),
            candidate=source / f"{name}.py" if source.is_dir() else source,
            reference=folder / table["reference"],
            launch=launch_of(launch) if launch is not None else None,
            shapes=table.get("with", []),
            shrink=table.get("shrink", False),
            prelude=folder / table["prelude"] if "prelude" in table else None,
            seconds=table.get("seconds", 300.0),
        )


def row_of(case: Case, verdict: Verdict) -> dict[str, object]:
    """A row of the table, without the folders of this machine."""
    reason = ""
    if verdict.reasons:
        first = verdict.reasons[0]
        reason = re.sub(r"/\S+/", "", f"{first.kind}: {first.message}".splitlines()[0])
    return {
        "case": case.name,
        "expected": case.expected,
        "verdict": verdict.verdict,
        "reason": reason,
        "seconds": verdict.seconds,
        "fault": case.fault,
        "source": case.source,
    }


def read_table(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def write_table(file: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as text:
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def summary(rows: Sequence[Mapping[str, str]]) -> str:
    """How many verdicts are as expected, and how long they take."""
    lines = []
    for expected in (WRONG, RIGHT):
        of_kind = [row for row in rows if row["expected"] == expected]
        lines.append(f"{sum(row['verdict'] == expected for row in of_kind)} of {len(of_kind)} are {expected}")
    seconds = sorted(float(row["seconds"]) for row in rows)
    if seconds:
        lines.append(f"median {seconds[len(seconds) // 2]:.0f} s, longest {seconds[-1]:.0f} s")
    return "; ".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cases", type=Path, default=CASES, metavar="FILE", help="(tests/data/verify/cases.toml)"
    )
    parser.add_argument("--csv", type=Path, default=TABLE, metavar="FILE", help="(results/verify.csv)")
    parser.add_argument("--only", default="", metavar="WORD", help="those whose names contain it, again")


def main(options: argparse.Namespace) -> int:
    cases = read_cases(options.cases)
    rows = {row["case"]: row for row in read_table(options.csv)}
    chosen = [one for one in cases if (options.only in one.name if options.only else one.name not in rows)]
    if options.only and not chosen:
        raise LadderError(f"no case has {options.only!r} in its name")
    for case in chosen:
        rows[case.name] = {key: str(value) for key, value in row_of(case, case.verdict()).items()}
        write_table(options.csv, [*rows.values()])
        row = rows[case.name]
        sign = "" if row["verdict"] == row["expected"] else "  <- not as expected"
        print(f"{case.name}: {row['verdict']} ({row['seconds']} s) {row['reason'][:80]}{sign}", flush=True)
    print(summary([*rows.values()]))
    return 0 if all(row["verdict"] == row["expected"] != NOT_JUDGED for row in rows.values()) else 1
