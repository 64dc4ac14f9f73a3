"""``ladder run``: runs one stage, never using cached rows."""

from __future__ import annotations

import argparse
from typing import Any

from rich.markup import escape

from ladder.cli.options import add_command, add_json_option, add_problem_options, chosen_options, read_problem
from ladder.cli.output import print_comparison, say_where_wrong, write_rows
from ladder.cli.problems import operation_of_stages
from ladder.common.terminal import errors, show_error


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(commands, "run", _run, "run one stage, never from the cache, and check it")
    parser.add_argument("stage", metavar="STAGE")
    add_problem_options(parser)
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.run.evaluation import run_comparison

    result = run_comparison(
        read_problem(options, operation_of_stages([options.stage])),
        [options.stage],
        backend=options.backend,
        arch=options.arch,
        options=chosen_options(options),
        fresh=True,
    )
    if options.json != "-":
        print_comparison(result)
    write_rows(options.json, result.rows)
    for error in result.failed.values():
        show_error(error, options.stage)
    for reason in result.reasons.values():
        errors.print(f"[bold red]wrong:[/] {escape(reason)}", highlight=False, soft_wrap=True)
        say_where_wrong(result.rows[0], options)
    return 0 if result.passed else 1
