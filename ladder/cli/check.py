"""``ladder check``: runs stages under the sanitizer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from ladder.cli.options import (
    add_command,
    add_json_option,
    add_problem_options,
    chosen_options,
    read_problem,
    require_emulator,
)
from ladder.cli.output import print_lines, write_rows
from ladder.cli.problems import is_problem_given, operation_of_stages
from ladder.common.terminal import errors, show_error
from ladder.errors import BuildError, LadderError, StageError, UnsupportedProblem

if TYPE_CHECKING:
    from ladder.stages import Ladder


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "check",
        _run,
        "find races, memory and barrier faults, by line",
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    add_problem_options(parser)
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.run.evaluation import checked_stage, stage_remarks
    from ladder.show.render import findings_lines, remark_lines
    from ladder.stages import discover

    require_emulator(options, "sees every access")
    ladder = discover()
    for name in options.stages:
        _require_stage(name, ladder)
    named = [ladder.today(name) for name in options.stages]
    names = named or [stage.name for stage in ladder]
    problems = None
    if is_problem_given(options):
        operation = operation_of_stages(options.stages)
        problems = [read_problem(options, operation)]
        names = named or [stage.name for stage in ladder.computing(operation.name)]
    rows: list[dict[str, Any]] = []
    refused: list[LadderError] = []
    failed: list[str] = []
    for name in names:
        try:
            checked = checked_stage(
                ladder[name], problems, arch=options.arch, options=chosen_options(options)
            )
        except UnsupportedProblem as error:
            refused.append(error)
            errors.print(f"{name} is left out: {escape(error.message)}", highlight=False, soft_wrap=True)
            continue
        except BuildError as error:
            failed.append(name)
            show_error(error, name)
            continue
        rows += [{"stage": name, **finding.as_row()} for finding in checked.findings]
        if options.json != "-":
            print_lines(findings_lines(checked.findings, name, checked.remarks))
            remarks = stage_remarks(ladder[name], arch=options.arch, options=chosen_options(options))
            print_lines(remark_lines([remark for remark in remarks if not remark.is_undefined]))
    if len(refused) == len(names):
        raise UnsupportedProblem("no stage takes this problem")
    write_rows(options.json, rows)
    return 1 if rows or failed else 0


def _require_stage(name: str, ladder: Ladder) -> None:
    """Raises :class:`LadderError` unless there is such a stage; it says how to check a program or an exercise
    that is none.
    """
    try:
        ladder[name]
    except StageError:
        if Path(name).suffix == ".cu":
            raise _no_stage_but_a_file(Path(name), ladder) from None
        if found := _no_stage_but_an_exercise(name):
            raise found from None
        raise


def _no_stage_but_a_file(path: Path, ladder: Ladder) -> LadderError:
    stage = path.resolve().parent.name
    known = {*(one.name for one in ladder), *ladder.aside}
    if path.name == "kernel.cu" and stage in known:
        return LadderError(f"{path} is the kernel of the stage {stage}", f"ladder check {stage}")
    return LadderError(f"{path} is a program, not a stage", f"ladder emulate --check {path}")


def _no_stage_but_an_exercise(name: str) -> LadderError | None:
    from ladder.course.exercises import Workspace, exercises

    exercise = next((one for one in exercises() if one.name == name), None)
    if exercise is None:
        return None
    workspace = Workspace(may_be_new=True)
    if not workspace.is_started(exercise):
        return LadderError(f"the exercise {name} has not been started", f"ladder exercise start {name}")
    program = workspace.path(exercise) / exercise.main_file
    return LadderError(
        f"{name} is an exercise with a program of its own", f"ladder emulate --check {program}"
    )
