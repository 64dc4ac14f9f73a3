"""``ladder explain``: shows one shared-memory access of a line, bank by bank, or its operands and boxes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ladder.counts.banks import Placement, Service


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands,
        "explain",
        _run,
        "show a line's access to shared memory: lanes, banks, tiles",
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
    from ladder.counts.banks import PlacedLine, explain_line, parse_place
    from ladder.show.render import explanation_lines, placed_line_lines

    require_emulator(options, "sees addresses")
    found = explain_line(
        options.place,
        read_problem(options, operation_of_stages([parse_place(options.place)[0]])),
        arch=options.arch,
        options=chosen_options(options),
        instruction=options.instruction,
    )
    drawn: Service | tuple[Placement, ...]
    if isinstance(found, PlacedLine):
        drawn, lines = found.chosen.placements, placed_line_lines(found, console.width)
    else:
        drawn, lines = found.service, explanation_lines(found, console.width)
    if options.picture:
        save_picture(drawn, found.title, options.picture)
    print_lines(lines)
    return 0
