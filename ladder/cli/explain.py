"""``ladder explain``: shows one shared-memory access of a line, bank by bank."""

from __future__ import annotations

import argparse
from typing import Any

from ladder.cli.options import (
    add_command,
    add_picture_option,
    add_problem_options,
    chosen_options,
    read_problem,
    require_emulator,
)
from ladder.cli.output import print_lines, save_picture
from ladder.cli.problems import operation_of_stages
from ladder.common.terminal import console


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands, "explain", _run, "show one shared-memory access of a line: lanes, banks, passes"
    )
    parser.add_argument(
        "place", metavar="STAGE:LINE", help="of kernel.cu; STAGE:FILE:LINE of a helper's file"
    )
    parser.add_argument(
        "--instruction", type=int, metavar="N", help="of several at that line (the one with most conflicts)"
    )
    add_picture_option(parser)
    add_problem_options(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.banks import explain, parse_place
    from ladder.render import explanation_lines

    require_emulator(options, "sees addresses")
    found = explain(
        options.place,
        read_problem(options, operation_of_stages([parse_place(options.place)[0]])),
        arch=options.arch,
        options=chosen_options(options),
        instruction=options.instruction,
    )
    if options.picture:
        save_picture(found.service, found.title, options.picture)
    print_lines(explanation_lines(found, console.width))
    return 0
