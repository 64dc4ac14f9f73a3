"""``ladder compare``: runs stages on one problem and shows one table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from ladder.cli.options import (
    add_command,
    add_json_option,
    add_problem_options,
    add_time_option,
    chosen_options,
    read_problem,
    time_gpu,
)
from ladder.cli.output import print_comparison, say_where_wrong, write_rows
from ladder.cli.problems import add_operation_option, by_operation
from ladder.common.terminal import errors, print_table, show_error

if TYPE_CHECKING:
    from ladder.counts.time import Gpu
    from ladder.operations import AnyProblem
    from ladder.run.evaluation import Comparison


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands, "compare", _run, "run rungs on one problem: right or wrong, what each step saves"
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    add_problem_options(parser)
    add_json_option(parser)
    add_operation_option(parser)
    parser.add_argument("--details", action="store_true", help="show all counts, also of more than 3 rungs")
    add_time_option(parser, "the unit that bounds")
    parser.add_argument("--fresh", action="store_true", help="ignore cached rows and run everything again")


def _run(options: argparse.Namespace) -> int:
    """Shows one table per operation of the named stages; by default, attention's."""
    from ladder.run.evaluation import run_comparison

    gpu, results = time_gpu(options), []
    for operation, names in by_operation(options).items():
        result = run_comparison(
            read_problem(options, operation),
            names or None,
            backend=options.backend,
            arch=options.arch,
            options=chosen_options(options),
            fresh=options.fresh,
        )
        if options.json != "-" and result.rows:
            print_comparison(result, options.details)
            if gpu is not None:
                _show_times(gpu, result, read_problem(options, operation), options)
        results.append(result)
    write_rows(options.json, [row for result in results for row in result.rows])
    for result in results:
        _say_of_comparison(result, options)
    return 0 if all(result.passed for result in results) else 1


def _show_times(gpu: Gpu, result: Comparison, problem: AnyProblem, options: argparse.Namespace) -> None:
    """The least time of each rung that was compared; why, of one that has none."""
    from ladder.counts.time import Bound, bound_of, count_stage
    from ladder.errors import LadderError
    from ladder.show.render import bounds_table_of_rungs
    from ladder.stages import discover

    bounds: dict[str, Bound | LadderError] = {}
    for row in result.rows:
        try:
            counted = count_stage(discover()[row["stage"]], problem, gpu, options=chosen_options(options))
            bounds[row["stage"]] = bound_of(gpu, counted.launches)
        except LadderError as error:
            bounds[row["stage"]] = error
    print_table(bounds_table_of_rungs(bounds, gpu))


def _say_of_comparison(result: Comparison, options: argparse.Namespace) -> None:
    """Reports why stages are missing from the table, and what to do about wrong ones."""
    from ladder.run.backends import get_backend
    from ladder.stages import BY_THE_MANUAL

    if options.stages or options.details:
        for name, skip in result.skipped.items():
            errors.print(f"{name} is left out: {escape(skip.message)}", highlight=False, soft_wrap=True)
    elif result.skipped:
        count = len(result.skipped)
        errors.print(f"left out: {count} that do not take this problem; --details names them", style="dim")
    if any(row["arch"] in BY_THE_MANUAL for row in result.rows):
        errors.print("counts are by the manual, not checked on a GPU", style="dim")
    if result.cached:
        rows = "row was" if result.cached == 1 else "rows were"
        errors.print(f"{result.cached} {rows} computed before; --fresh computes again", style="dim")
    if not get_backend(options.backend).counts:
        errors.print("a GPU's counters are not read here; --backend emulator counts", style="dim")
    for row in result.rows:
        if row["stage"] not in result.failed:
            say_where_wrong(row, options)
    for name, error in result.failed.items():
        show_error(error, name)
