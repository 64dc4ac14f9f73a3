"""Mutation testing of the exercises' checks: which mutants of the solutions' lines are refused.

One that it accepts is either right, and listed in ``equivalent_mutants.toml`` with the reason, or the
exercise lacks a case.
"""

from __future__ import annotations

import argparse
import os
import random
from concurrent.futures import ThreadPoolExecutor

from ladder.common import cache
from ladder.common.progress import steps
from ladder.course.exercises import (
    BEGIN,
    END,
    Exercise,
    Verdict,
    exercises,
    get_exercise,
    judge_folder,
    write_working_copy,
)
from tools.bench.mutants import Mutant, Outcome, mutants_of, report


def gap_mutants(exercise: Exercise) -> list[Mutant]:
    """The mutants of the lines between the markers in the solution."""
    lines = exercise.sources(solved=True)[exercise.gap.file].splitlines()
    begin, end = (
        next(place for place, line in enumerate(lines) if line.strip().startswith(marker))
        for marker in (BEGIN, END)
    )
    return mutants_of(exercise.name, lines, range(begin + 1, end))


def judge_gap(mutant: Mutant) -> Outcome:
    """Checks the solution with this change."""
    verdict = _verdict(mutant)
    builds = verdict.passed or verdict.findings[0].kind != "build"
    return Outcome(mutant, {"check": not verdict.passed} if builds else {})


def _verdict(mutant: Mutant) -> Verdict:
    exercise = get_exercise(mutant.stage)
    folder = cache.root() / "mutants" / cache.digest([mutant.name]) / exercise.name
    folder.mkdir(parents=True, exist_ok=True)
    write_working_copy(exercise, folder, solved=True)
    path = folder / exercise.gap.file
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[mutant.line - 1] = mutant.new
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return judge_folder(exercise, folder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help="default: all of them")
    parser.add_argument(
        "--sample", type=int, metavar="N", help="only so many of the mutants, the same each time"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at once (as many as cores)")


def main(options: argparse.Namespace) -> int:
    """Prints the table and the wrong mutants that are accepted; returns 1 if there is one."""
    chosen = [get_exercise(name) for name in options.exercises] or exercises()
    found = [mutant for exercise in chosen for mutant in gap_mutants(exercise)]
    if options.sample is not None:
        found = random.Random(0).sample(found, min(options.sample, len(found)))
    with steps("Judging", len(found), elsewhere=False) as progress, ThreadPoolExecutor(options.jobs) as pool:

        def judged(mutant: Mutant) -> Outcome:
            with progress.step(f"{mutant.stage}:{mutant.line}"):
                return judge_gap(mutant)

        outcomes = list(pool.map(judged, found))
    return 1 if report(outcomes, ["check"]) else 0
