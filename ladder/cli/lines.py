"""``ladder lines``: shows a stage's source with counts beside the lines."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.cli.options import (
    add_command,
    add_json_option,
    add_problem_options,
    add_time_option,
    chosen_options,
    not_negative,
    read_problem,
    require_emulator,
    time_gpu,
)
from ladder.cli.output import print_lines, write_rows
from ladder.cli.problems import operation_of_stages
from ladder.common import files
from ladder.common.terminal import console, print_table, source_width

if TYPE_CHECKING:
    from ladder.counts.time import Gpu
    from ladder.run.evaluation import Evaluation

#: Of the bounding unit.
_LINES = 10


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(commands, "lines", _run, "show a stage's source with the counts beside each line")
    parser.add_argument("stage", metavar="STAGE")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--context", type=not_negative, default=3, metavar="LINES", help="lines of context (3)"
    )
    shown.add_argument("--all", action="store_true", help="whole files")
    add_time_option(parser, "the lines that owe the most to the unit that bounds")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a self-contained page")
    add_problem_options(parser)
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.counts import annotate, line_table
    from ladder.run.evaluation import evaluate, stage_remarks
    from ladder.show.render import page, remark_lines, source_note, source_table

    require_emulator(options, "counts line by line")
    gpu = time_gpu(options)
    problem = read_problem(options, operation_of_stages([options.stage]))
    evaluation = evaluate(
        options.stage, problem, backend="emulator", arch=options.arch, options=chosen_options(options)
    )
    table = line_table(evaluation.execution.launches)
    annotated = annotate(table)
    if options.html:
        row = evaluation.row
        files.write(options.html, page(annotated, row["stage"], evaluation.problem, row["arch"]).encode())
    if options.json != "-":
        for listing in annotated.files:
            context = None if options.all else options.context
            print_table(source_table(listing, annotated, context, source_width()))
            console.print()
        console.print(source_note(annotated), style="dim", highlight=False)
        remarks = stage_remarks(options.stage, arch=options.arch, options=chosen_options(options))
        print_lines(remark_lines(remarks))
        if gpu is not None:
            _show_time(gpu, evaluation)
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    write_rows(options.json, [{str(name): value for name, value in row.items()} for row in rows])
    return 0


def _show_time(gpu: Gpu, evaluation: Evaluation) -> None:
    from ladder.counts.time import bound_of, work_of_launch
    from ladder.show.render import bound_table, bounding_lines_table

    bound = bound_of(gpu, [work_of_launch(launch) for launch in evaluation.execution.launches])
    print_table(bound_table(bound, f"{evaluation.row['stage']}, {evaluation.problem}"))
    print_table(bounding_lines_table(bound, _LINES))
