"""Judges programs: builds them, runs them under the sanitizer, and trusts their own check of the result.

A program's ``main``, which the student does not write, computes the expected result on the host, prints what
is wrong and then returns a non-zero exit code.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from ladder.common.progress import steps
from ladder.common.wording import said
from ladder.compile import EmulatorTarget, build_program, confined
from ladder.course.exercises.definition import GLOBAL_ATOMICS, Exercise, Run
from ladder.course.exercises.judge import (
    MOST_INSTRUCTIONS,
    access_remark,
    cheap_text,
    dear_text,
    own_place,
)
from ladder.course.exercises.program_output import printed
from ladder.course.exercises.reference_counts import reference_counts
from ladder.course.exercises.verdict import Remark, Verdict
from ladder.errors import BuildError, ExecutionError
from ladder.run.emulator import (
    COUNTERS,
    HOST_LINES,
    ConfinedRun,
    ProgramResult,
    instruction_limit,
    retold,
    run_confined,
)
from ladder.stages import DEFAULT_ARCH

#: The runs of a program are small: together they take less, unless one is in an endless loop. Those that are
#: left have a second each then.
MOST_SECONDS, _LEAST_SECONDS = 60.0, 1.0

_WRITTEN = "global_sectors_st"
#: Findings about calls of the host that an answer may cause. Others, such as leaks, follow when ``main`` ends
#: early.
_OF_THE_HOST = ("race between streams", "race with the host", "bad copy")


def judge_program(exercise: Exercise, program: Path) -> Verdict:
    """Builds ``program`` and does all of the exercise's runs on the emulator."""
    verdict = Verdict(exercise, own_lines=own_place(program.parent))
    total = len(exercise.runs) + 1
    with (
        steps(said("Checking {name}:", name=exercise.name), total, elsewhere=False) as progress,
        instruction_limit(MOST_INSTRUCTIONS),
    ):
        try:
            with progress.step(said("building")):
                target = EmulatorTarget(DEFAULT_ARCH)
                with confined(program.parent, *target.header_folders()):
                    built = build_program([program], target, HOST_LINES, judged=True)
        except BuildError as error:
            verdict.findings.append(Remark("build", error.message))
            return verdict
        seconds = MOST_SECONDS
        for run in exercise.runs:
            name = " ".join([program.name, *run.arguments])
            command = f"ladder emulate --check {program} -- {shlex.join(run.arguments)}"
            begin = time.monotonic()
            with progress.step(name):
                remarks, counts = _run(built, run, name, command, verdict, seconds)
                if not remarks:
                    remarks = _cheap(exercise, counts, name)
            (verdict.wrong if remarks else verdict.right).append(name)
            if not verdict.findings:  # report one problem at a time
                verdict.findings += remarks
            verdict.keep_largest(counts, name)
            seconds = max(seconds - (time.monotonic() - begin), _LEAST_SECONDS)
    return verdict


def _run(
    built: Path, run: Run, name: str, command: str, verdict: Verdict, seconds: float
) -> tuple[list[Remark], Mapping[str, int | None]]:
    """Does one run; returns what is wrong and its kernels' counts."""
    try:
        ran = run_confined(built, run.arguments, DEFAULT_ARCH, seconds)
    except ExecutionError as error:
        verdict.was_ended = True
        return [Remark("fault", _on(name, retold(error.message)), (command,), on=name)], {}
    verdict.protections = ran.protections
    counts = _totals(ran.result)
    return _wrong(ran, name, command) or _dear(run, counts, name), counts


def _totals(result: ProgramResult) -> dict[str, int | None]:
    """Sums the counts over all kernels; a column unknown for any of them is unknown."""
    totals: dict[str, int | None] = {}
    for column in (*COUNTERS, GLOBAL_ATOMICS):
        values = [launch.counters[column] for launch in result.launches]
        totals[column] = None if None in values else sum(value or 0 for value in values)
    return totals


def _wrong(ran: ConfinedRun, name: str, command: str) -> list[Remark]:
    result = ran.result
    accesses = [one for one in result.findings if one.who is not None or one.kind in _OF_THE_HOST]
    remarks = [access_remark(accesses[0], name, command)] if accesses else []
    if result.exit_code and not result.fault:
        # The output first: a wrong address looks like a race, but no barrier fixes it.
        remarks.insert(0, Remark("output", _on(name, printed(ran.output)), (command,), on=name))
    elif result.fault and not remarks:
        remarks.append(Remark("fault", _on(name, retold(result.fault)), (command,), on=name))
    elif result.returned != 0:
        text = _on(name, said("It ended before main had compared the result."))
        remarks.append(Remark("output", text, (command,), on=name))
    elif not result.launches:
        remarks.append(Remark("output", _on(name, said("It launches no kernel.")), (command,), on=name))
    return remarks


def _on(name: str, text: str) -> str:
    return said("On {on}:", on=name) + f"\n{text}"


def _dear(run: Run, counts: Mapping[str, int | None], name: str) -> list[Remark]:
    for column, most in run.at_most.items():
        value = counts[column]
        if value is None or value > most:
            return [Remark("counts", dear_text(name, column, value, most, run.reason), on=name)]
    return []


def _cheap(exercise: Exercise, counts: Mapping[str, int | None], name: str) -> list[Remark]:
    """What is wrong if the kernels write less than half of what the reference's write."""
    known = reference_counts(exercise)
    if known is None or known.on != name:
        return []
    least, value = known.counts.get(_WRITTEN, 0) // 2, counts[_WRITTEN]
    if value is None or value >= least:
        return []
    return [Remark("counts", cheap_text(name, _WRITTEN, value, least), on=name)]
