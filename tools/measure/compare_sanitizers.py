"""Runs planted faults and clean kernels under the emulator's sanitizer and NVIDIA's, side by side.

    python -m tools.measure.compare_sanitizers --csv FILE            # ours: a row per case, and the table
    python -m tools.measure.compare_sanitizers --gpu --csv FILE      # on a GPU: compute-sanitizer's

Our sanitizer catches a case if it names the kind and the line; compute-sanitizer, if any of its tools reports
any error. A case that hangs is killed after a while and counts as missed. FILE is written after each case,
and what it has is kept, so that an interrupted run goes on where it was; --again runs ours anew.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from threading import Lock

from rich.console import Console
from rich.progress import track
from rich.table import Table

from ladder.compile import CudaTarget, EmulatorTarget, Target
from tools.bench import provenance

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "sanitizer"))
import corpus_runs as corpus

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TOOL_OPTIONS = {"memcheck": ["--leak-check", "full"], "initcheck": [], "racecheck": [], "synccheck": []}
TIMEOUT_S = 15
#: The columns of the environment, which the tools' answers depend on.
ENVIRONMENT = ("gpu", "driver", "compiler", "date")


@dataclass(frozen=True)
class Case:
    """One run. ``expected`` is the planted kind, or "" for a clean kernel."""

    source: Path
    name: str
    expected: str


def all_cases() -> list[Case]:
    cases = []
    for name in (*corpus.FILES, *corpus.HOPPER_FAULTS, *corpus.HOPPER_CLEAN):
        source = corpus.CORPUS / f"{name}.cu"
        expected = corpus.expectations(source)
        cases += [
            Case(source, c, expected[c].kind if c in expected else "") for c in corpus.case_names(source)
        ]
    for stage in sorted({mutant.stage for mutant in corpus.mutants()}):
        source = corpus.rungs_source(stage)
        cases.append(Case(source, stage, ""))
        cases += [Case(source, m.name, m.kind) for m in corpus.mutants() if m.stage == stage]
    return cases


def ours(program: Path, case: Case) -> bool:
    """Whether the emulator's sanitizer reports the case; a planted fault by kind and line."""
    result = corpus.run_case(program, case.name, corpus.arch_of(case.source))
    findings = list(result.findings)
    if not case.expected:
        return bool(findings)
    for mutant in corpus.mutants():
        if mutant.name == case.name:
            return corpus.is_mutant_caught(mutant, findings, result.exit_code)
    return corpus.is_caught(corpus.expectations(case.source)[case.name], findings)


def theirs(program: Path, case: Case, tool: str) -> str:
    """The verdict of a compute-sanitizer tool: the sum of its errors, hazards and leaked bytes, or "hang"."""
    command = ["compute-sanitizer", "--tool", tool, *TOOL_OPTIONS[tool], str(program), case.name]
    with tempfile.TemporaryFile("w+") as output:
        # A new session, to kill the whole group: the tool, killed alone, leaves the program running.
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            exit_code = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "hang"
        output.seek(0)
        text = output.read()
    summary = re.search(r"ERROR SUMMARY: (\d+) error", text)
    hazards = re.search(r"RACECHECK SUMMARY: (\d+) hazard", text)
    leaks = re.search(r"LEAK SUMMARY: (\d+) bytes", text)
    counts = [int(found.group(1)) for found in (summary, hazards, leaks) if found]
    return str(sum(counts)) if counts else f"exit {exit_code}"


def is_report(answer: str) -> bool:
    return answer.isdigit() and int(answer) > 0


class Rows:
    """The rows of a file, one for each case, in their order. Those of cases that are no more are dropped."""

    def __init__(self, cases: list[Case], known: Path, output: Path) -> None:
        self.output = output
        self.lock = Lock()
        self.of = {
            case.name: {"case": case.name, "expected": case.expected or "clean", "ours": ""} for case in cases
        }
        if known.is_file():
            with known.open(newline="") as file:
                for row in csv.DictReader(file):
                    if row["case"] in self.of and row["expected"] == self.of[row["case"]]["expected"]:
                        self.of[row["case"]] |= row

    def all(self) -> list[dict[str, str]]:
        return list(self.of.values())

    def add(self, case: Case, answer: dict[str, str]) -> None:
        with self.lock:
            self.of[case.name] |= answer
            write(self.all(), self.output)


def built(cases: list[Case], target: type[Target], jobs: int) -> dict[Path, Path]:
    """The program of each case's source."""
    sources = list(dict.fromkeys(case.source for case in cases))
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(sources, pool.map(corpus.build_corpus, sources, repeat(target)), strict=True))


def ask(
    rows: Rows,
    left: list[Case],
    programs: dict[Path, Path],
    jobs: int,
    answer: Callable[[Path, Case], dict[str, str]],
    description: str,
) -> None:
    """Adds the answers about the cases that are ``left`` to their rows, as they come."""

    def add(case: Case) -> None:
        rows.add(case, answer(programs[case.source], case))

    with ThreadPoolExecutor(jobs) as pool:
        for _ in track(pool.map(add, left), total=len(left), description=description):
            pass


def add_ours(rows: Rows, cases: list[Case], jobs: int, again: bool) -> None:
    def answer(program: Path, case: Case) -> dict[str, str]:
        return {"ours": _word(ours(program, case))}

    left = [case for case in cases if again or not rows.of[case.name]["ours"]]
    ask(rows, left, built(left, EmulatorTarget, jobs), jobs, answer, "ours")


def add_theirs(rows: Rows, cases: list[Case], jobs: int) -> None:
    """Adds the tools' verdicts, their combination "compute-sanitizer", and the environment."""
    environment = provenance.measured_on()
    where = {name: environment[name] for name in ENVIRONMENT}

    def answer(program: Path, case: Case) -> dict[str, str]:
        told = {tool: theirs(program, case, tool) for tool in TOOLS}
        return where | told | {"compute-sanitizer": _word(any(map(is_report, told.values())))}

    left = [case for case in cases if not rows.of[case.name].get("compute-sanitizer")]
    ask(rows, left, built(left, CudaTarget, jobs), jobs, answer, "compute-sanitizer")


def write(rows: list[dict[str, str]], output: Path) -> None:
    columns = dict.fromkeys(name for row in rows for name in row)
    with output.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _word(is_reported: bool) -> str:
    return "reported" if is_reported else "silent"


def summary(rows: list[dict[str, str]]) -> Table:
    """A table of caught, missed and false alarms for both sanitizers, by kind of fault."""
    columns = [name for name in ("ours", "compute-sanitizer") if any(row.get(name) for row in rows)]
    table = Table("planted", "cases", *columns)
    kinds = Counter(row["expected"] for row in rows)
    for kind in sorted(kinds, key=lambda kind: (kind == "clean", kind)):
        of_kind = [row for row in rows if row["expected"] == kind]
        told = [str(sum(row.get(name) == "reported" for row in of_kind)) for name in columns]
        table.add_row(kind, str(kinds[kind]), *told)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="compute-sanitizer's four tools instead")
    parser.add_argument("--csv", type=Path, metavar="FILE", required=True, help="a row for each case")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write them (the same FILE)")
    parser.add_argument("--again", action="store_true", help="run ours anew where FILE has an answer")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    options = parser.parse_args()
    if options.gpu and not shutil.which("compute-sanitizer"):
        parser.error("compute-sanitizer is not on the PATH; it is in the bin folder of a CUDA toolkit")
    cases = all_cases()
    table = Rows(cases, options.csv, options.output or options.csv)
    if options.gpu:
        add_theirs(table, cases, options.jobs)
    else:
        add_ours(table, cases, options.jobs, options.again)
    rows = table.all()
    Console().print(summary(rows))
    told = [row for row in rows if row["ours"]]
    wrong = [row["case"] for row in told if (row["ours"] == "reported") != (row["expected"] != "clean")]
    if wrong:
        print("ours is wrong about:", ", ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
