"""``ladder report``: writes a run as one self-contained page to hand in."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder import project
from ladder.cli import doctor
from ladder.cli.options import (
    add_command,
    add_problem_options,
    chosen_options,
    read_problem,
    require_emulator,
)
from ladder.cli.output import say_written
from ladder.cli.problems import add_operation_option, by_operation, is_problem_given, problem_of
from ladder.common import files
from ladder.common.progress import steps
from ladder.errors import BuildError
from ladder.operations import AnyProblem, Operation

if TYPE_CHECKING:
    from ladder.counts import Annotated
    from ladder.counts.banks import Explanation
    from ladder.run.evaluation import Comparison
    from ladder.show.render import Report, RungReport
    from ladder.stages import Stage


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    text = "write a page on a run: table, costly lines, pictures, findings"
    parser = add_command(commands, "report", _run, text)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="(report.html)")
    add_problem_options(parser)
    add_operation_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.show.render import Report, report_document
    from ladder.stages import discover

    require_emulator(options, "counts line by line")
    comparisons: list[Comparison] = []
    rungs: list[RungReport] = []
    for operation, names in by_operation(options).items():
        counted, *timed = _comparisons(options, operation, names)
        comparisons += [counted, *timed]
        rungs += _rungs(options, read_problem(options, operation), counted)
    report = Report(
        title=f"Report on {rungs[0].name if len(rungs) == 1 else f'{len(rungs)} rungs'}",
        made=f"Made by flash-ladder {project.version()} on {date.today()}.",
        comparisons=comparisons,
        rungs=rungs,
        machine=[(found.what, found.detail) for found in doctor.examine()],
    )
    files.write(options.out, report_document(report, discover()).encode())
    say_written(options.out)
    return 0 if _is_well(report) else 1


def _is_well(report: Report) -> bool:
    """Whether all results are correct and the sanitizer found nothing."""
    return all(comparison.passed for comparison in report.comparisons) and not any(
        rung.findings for rung in report.rungs
    )


def _comparisons(
    options: argparse.Namespace, operation: Operation, names: Sequence[str]
) -> Iterator[Comparison]:
    """Yields the emulator's counts, then the times on the GPU if there is one."""
    from ladder.run.backends import get_backend
    from ladder.run.evaluation import run_comparison

    yield run_comparison(
        read_problem(options, operation),
        names or None,
        backend="emulator",
        arch=options.arch,
        options=chosen_options(options),
    )
    gpu = get_backend("auto")
    if gpu.times:
        problem = problem_of(options, operation, gpu.default_problem(operation))
        yield run_comparison(problem, names or None, backend=gpu.name, options=chosen_options(options))


def _rungs(options: argparse.Namespace, problem: AnyProblem, counted: Comparison) -> list[RungReport]:
    from ladder.show.render import RungReport
    from ladder.stages import discover

    ladder = discover()
    found = []
    names = list(dict.fromkeys([*(row["stage"] for row in counted.rows), *counted.failed]))
    with steps("Looking at", len(names)) as progress:
        for name in names:
            with progress.step(name):
                if name in ladder.broken:
                    found.append(RungReport(name, "", str(ladder.broken[name])))
                else:
                    found.append(_rung(options, ladder[name], problem, counted))
    return found


def _rung(options: argparse.Namespace, stage: Stage, problem: AnyProblem, counted: Comparison) -> RungReport:
    from ladder.run.evaluation import check_stage
    from ladder.show.render import RungReport

    failure = counted.failed.get(stage.name)
    if isinstance(failure, BuildError):
        return RungReport(stage.name, stage.idea, str(failure))
    # A run that failed has no counts, but the sanitizer may explain why.
    annotated, worst = (None, None) if failure else _lines(options, stage, problem)
    problems = [problem] if is_problem_given(options) else None
    findings = check_stage(stage, problems, arch=options.arch, options=chosen_options(options))
    error = str(failure) if failure else counted.reasons.get(stage.name, "")
    return RungReport(stage.name, stage.idea, error, annotated, worst, findings)


def _lines(
    options: argparse.Namespace, stage: Stage, problem: AnyProblem
) -> tuple[Annotated, Explanation | None]:
    """The source with its counts, and the worst access of the kernel line with the most conflicts."""
    from ladder.counts import annotate, line_table
    from ladder.counts.banks import explain_launches
    from ladder.run.evaluation import evaluate

    chosen = chosen_options(options)
    run = evaluate(stage, problem, backend="emulator", arch=options.arch, options=chosen)
    launches = run.execution.launches
    annotated = annotate(line_table(launches))
    lines = [
        (line.counts.conflicts or 0, listing.path.name, line.number)
        for listing in annotated.files
        for line in listing.lines
        if line.counts is not None and not line.is_helper
    ]
    conflicts, file_name, number = max(lines, default=(0, "", 0))
    worst = explain_launches(launches, stage.name, file_name, number) if conflicts else None
    return annotated, worst
