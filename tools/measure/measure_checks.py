#!/usr/bin/env python3
"""Processor time of a check of a changed kernel that is right: what a student waits for. It takes no GPU.

    sudo nice -n -15 python -m tools.measure.measure_checks [EXERCISE ...] [--runs 3] >results/checks.csv

Columns are medians of the runs, in seconds of all processes: `alone_s` of `ladder exercise check` in its own
process, `kept_s` of the same on a terminal, where torch is kept in memory, and `watched_s` of a check by
`ladder exercise watch`. Before, each kernel has been checked once.
"""

from __future__ import annotations

import argparse
import csv
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path

from ladder.cli import kept
from ladder.compile import pinned_nvcc
from ladder.course.exercises import Exercise, Workspace, exercises, get_exercise
from ladder.course.exercises.checking import check
from ladder.course.exercises.markers import fill_gap, solution_text
from tools.measure.measure_first_stops import processor

COLUMNS = ("exercise", "rung", "alone_s", "kept_s", "watched_s", "load", "nice", "cpu", "nvcc", "date")
_TICKS = os.sysconf("SC_CLK_TCK")


def used_seconds() -> float:
    """Processor time so far: of this process, of those that have ended below it, and of those that run."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    seconds = sum(one.ru_utime + one.ru_stime for one in map(resource.getrusage, kinds))
    below: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            below[int(words[1])].append(int(path.parent.name))
            ticks[int(path.parent.name)] = sum(map(int, words[11:15]))  # its own, and of children that ended
    found = [*below[os.getpid()]]
    for process in found:
        found += below[process]
    return seconds + sum(ticks[process] for process in found) / _TICKS


def command(exercise: Exercise, folder: Path, *, keep: bool) -> None:
    """Runs `ladder exercise check` on a terminal. Raises RuntimeError if the exercise is not solved."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "ladder", "exercise", "check", exercise.name, "--folder", str(folder)],
        env={**os.environ, "LADDER_KEEP": str(int(keep))},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = bytearray()
    with suppress(OSError):  # nobody has the terminal open any more
        while part := os.read(ours, 1 << 16):
            shown += part
    os.close(ours)
    if process.wait():
        raise RuntimeError(f"{exercise.name} is not solved: {shown.decode(errors='replace')}")


def measure(exercise: Exercise, runs: int) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as name:
        workspace = Workspace(Path(name))
        workspace.start(exercise)
        ways: dict[str, Callable[[], object]] = {
            "alone_s": lambda: command(exercise, workspace.folder, keep=False),
            "kept_s": lambda: command(exercise, workspace.folder, keep=True),
            "watched_s": lambda: check(workspace, exercise),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(runs + 1):  # the first makes what is kept
            for way, run in ways.items():
                text = f"{solution_text(exercise)}\n// {time.time_ns()}"
                fill_gap(exercise, workspace.path(exercise), text)
                before = used_seconds()
                run()
                seconds[way].append(used_seconds() - before)
    return {way: f"{statistics.median(found[1:]):.2f}" for way, found in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Processor time of checks of changed kernels.")
    parser.add_argument("exercises", nargs="*", default=[one.name for one in exercises()])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    sys.path[0] = os.getcwd()  # as in the commands below, which ask a process with their own path alone
    path = kept.socket_path()
    if path is None:
        raise SystemExit("nothing can be kept here")
    path.unlink(missing_ok=True)
    kept.start(path)  # a child of this process, so its time counts
    while not path.exists():
        time.sleep(0.1)
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    where = {
        "nice": os.nice(0),
        "cpu": processor(),
        "nvcc": pinned_nvcc().version,
        "date": date.today().isoformat(),
    }
    for exercise in map(get_exercise, options.exercises):
        load = f"{os.getloadavg()[0]:.1f}"
        row = {"exercise": exercise.name, "rung": exercise.rung or "", "load": load}
        table.writerow({**row, **measure(exercise, options.runs), **where})
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
