"""Runs planted faults and clean kernels under the emulator's sanitizer and NVIDIA's, side by side.

    python results/compare_sanitizers.py --csv FILE            # ours: a row for each case, and the table
    python results/compare_sanitizers.py --gpu --csv FILE      # on a GPU: adds compute-sanitizer's columns

Our sanitizer catches a case if it names the kind and the line; compute-sanitizer, if any of its tools reports
any error. A case that hangs is killed after a while and counts as missed.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from ladder.bench import provenance
from ladder.build import CudaTarget

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "sanitizer"))
import corpus_runs as corpus

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
TOOL_OPTIONS = {"memcheck": ["--leak-check", "full"], "initcheck": [], "racecheck": [], "synccheck": []}
TIMEOUT_S = 60
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
    for name in corpus.FILES:
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
    result = corpus.run_case(program, case.name)
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


def run_ours(cases: list[Case], jobs: int) -> list[dict[str, str]]:
    programs = {source: corpus.build_corpus(source) for source in {case.source for case in cases}}

    def row(case: Case) -> dict[str, str]:
        told = ours(programs[case.source], case)
        return {"case": case.name, "expected": case.expected or "clean", "ours": _word(told)}

    with ThreadPoolExecutor(jobs) as pool:
        return list(track(pool.map(row, cases), total=len(cases), description="ours"))


def add_theirs(rows: list[dict[str, str]], cases: list[Case], jobs: int, output: Path) -> None:
    """Adds to each row the tools' verdicts, their combination "compute-sanitizer", and the environment.

    Complete rows are kept, and ``output`` is written after each case, so that an interrupted run can be
    resumed.
    """
    environment = provenance.measured_on()
    where = {name: environment[name] for name in ENVIRONMENT}
    sources = list({case.source for case in cases})
    with ThreadPoolExecutor(jobs) as pool:
        built = pool.map(corpus.build_corpus, sources, repeat(CudaTarget))
        programs = dict(zip(sources, built, strict=True))

        def answers(case: Case) -> dict[str, str]:
            return {tool: theirs(programs[case.source], case, tool) for tool in TOOLS}

        by_name = {row["case"]: row for row in rows}
        left = [case for case in cases if not by_name[case.name].get("compute-sanitizer")]
        told = track(pool.map(answers, left), total=len(left), description="compute-sanitizer")
        for case, answer in zip(left, told, strict=True):
            row = by_name[case.name]
            row |= (
                where | answer | {"compute-sanitizer": _word(any(is_report(answer[tool]) for tool in TOOLS))}
            )
            write(rows, output)


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
    columns = [name for name in ("ours", "compute-sanitizer") if name in rows[0]]
    table = Table("planted", "cases", *columns)
    kinds = Counter(row["expected"] for row in rows)
    for kind in sorted(kinds, key=lambda kind: (kind == "clean", kind)):
        of_kind = [row for row in rows if row["expected"] == kind]
        told = [str(sum(row[name] == "reported" for row in of_kind)) for name in columns]
        table.add_row(kind, str(kinds[kind]), *told)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", action="store_true", help="compute-sanitizer, to add to the rows of FILE")
    parser.add_argument("--csv", type=Path, metavar="FILE", required=True, help="a row for each case")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write them (the same FILE)")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    options = parser.parse_args()
    cases = all_cases()
    if options.gpu:
        if not shutil.which("compute-sanitizer"):
            parser.error("compute-sanitizer is not on the PATH; it is in the bin folder of a CUDA toolkit")
        if not options.csv.is_file():
            parser.error(f"{options.csv} is not there; run this without --gpu first, to make it")
        with options.csv.open(newline="") as file:
            rows = list(csv.DictReader(file))
        add_theirs(rows, cases, options.jobs, options.output or options.csv)
    else:
        rows = run_ours(cases, options.jobs)
    Console().print(summary(rows))
    write(rows, options.output or options.csv)
    wrong = [row["case"] for row in rows if (row["ours"] == "reported") != (row["expected"] != "clean")]
    if wrong:
        print("ours is wrong about:", ", ".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
