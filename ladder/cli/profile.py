"""``ladder profile``: shows a GPU's counters beside the emulator's prediction."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.cli.options import (
    add_command,
    add_json_option,
    add_option_option,
    add_problem_options,
    chosen_options,
    read_problem,
)
from ladder.cli.output import print_comparison, write_rows
from ladder.cli.problems import is_problem_given, operation_of_stages
from ladder.common.terminal import console, errors, print_table, show_error, source_width
from ladder.errors import LadderError

if TYPE_CHECKING:
    from ladder.counts.profiling import Counted


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "profile",
        _run,
        "read a GPU's counters with Nsight Compute, beside the prediction",
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    parser.add_argument(
        "--import",
        nargs="+",
        type=Path,
        dest="reports",
        metavar="FILE",
        help="profile nothing; read reports (.ncu-rep) of stages or of any kernels, raw and source pages of "
        "them (.csv), or what tools/measure/measure_counters.py wrote",
    )
    parser.add_argument("--report", type=Path, metavar="FILE.ncu-rep", help="keep the report")
    add_problem_options(parser, with_target=False)
    add_option_option(parser.add_argument_group("where"))
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.counts.profiling import profile, read
    from ladder.errors import ProfilerError
    from ladder.run.evaluation import run_comparison

    if options.reports:
        if options.stages or options.report or options.option or is_problem_given(options):
            raise LadderError(
                "--import reads what was profiled before, and stages, problems or --report are given, too",
                "Leave out one of them.",
            )
        return _show_counted(read(options.reports), options)
    options.backend = "emulator"  # its default problem has at most one block per SM: exact counters
    problem, chosen = read_problem(options, operation_of_stages(options.stages)), chosen_options(options)
    if options.report is not None and options.report.suffix != ".ncu-rep":
        raise LadderError(f"{options.report} does not end in .ncu-rep", "ncu gives its reports that ending.")
    try:
        return _show_counted(profile(options.stages, problem, options=chosen, report=options.report), options)
    except ProfilerError as error:
        show_error(error)
    errors.print("What the emulator counts, instead:", highlight=False)
    result = run_comparison(problem, options.stages or None, backend="emulator", options=chosen)
    if options.json != "-":
        print_comparison(result)
    write_rows(options.json, result.rows)
    return 2


def _show_counted(counted: list[Counted], options: argparse.Namespace) -> int:
    from ladder.show.render import bounds_table, line_tables, note, profile_tables

    rows = [row for one in counted for row in (one.row, one.predicted) if row is not None]
    if options.json != "-":
        for table in (*profile_tables(counted), bounds_table(counted)):
            if table is not None:
                print_table(table)
        for table in line_tables(counted, source_width()):
            print_table(table)
        if note(counted):
            console.print(note(counted), style="dim", highlight=False)
    write_rows(options.json, rows)
    return 0
