"""``ladder check``: runs stages under the sanitizer."""

from __future__ import annotations

import argparse
from typing import Any

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
from ladder.errors import BuildError, LadderError, UnsupportedProblem


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "check",
        _run,
        "run stages under the sanitizer: races, memory and barrier faults, by line",
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    add_problem_options(parser)
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.evaluation import checked_stage, stage_remarks
    from ladder.render import findings_lines, remark_lines
    from ladder.stages import discover

    require_emulator(options, "sees every access")
    ladder = discover()
    names = options.stages or [stage.name for stage in ladder]
    problems = None
    if is_problem_given(options):
        operation = operation_of_stages(options.stages)
        problems = [read_problem(options, operation)]
        names = options.stages or [stage.name for stage in ladder.computing(operation.name)]
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
