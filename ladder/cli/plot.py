"""``ladder plot``: draws pictures of the lessons by name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from ladder.cli.options import add_command
from ladder.cli.output import say_written
from ladder.common import files
from ladder.common.progress import steps
from ladder.common.terminal import console
from ladder.errors import LadderError


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(commands, "plot", _run, "draw a picture of the lessons; without a name, list them")
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a .png, .svg or .pdf (NAME.png)")

    group = parser.add_argument_group("of the picture mask")
    for option, what in (
        ("--queries", "queries, the last of the tokens (all)"),
        ("--keys", "tokens (24)"),
        ("--contexts", "tokens at the beginning that are contexts (0)"),
        ("--targets", "tokens at the end that are targets (0)"),
    ):
        group.add_argument(option, type=int, metavar="N", help=what)
    group.add_argument(
        "--group", dest="target_group_size", type=int, metavar="N", help="targets that see each other (1)"
    )
    group.add_argument("--window", type=_pair, metavar="L,R", help="keys before and after (-1,0: causal)")
    group.add_argument("--tile", type=_pair, metavar="N,M", help="queries and keys per tile (4,4)")


#: The options of the picture ``mask``, by parameter name of the function that draws it.
_MASK_OPTIONS = ("queries", "keys", "contexts", "targets", "target_group_size", "window", "tile")


def _pair(text: str) -> tuple[int, int]:
    try:
        first, second = (int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not two whole numbers, such as 3,0") from None
    return first, second


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: value for name in _MASK_OPTIONS if (value := getattr(options, name)) is not None}
    if given and options.name != "mask":
        raise LadderError(
            "the options of a mask are of the picture mask alone", "ladder plot mask --targets 8"
        )
    if min(options.tile or (1, 1)) < 1:
        raise LadderError(f"--tile {options.tile[0]},{options.tile[1]} is no tile; both are 1 or more")
    return given


def _run(options: argparse.Namespace) -> int:
    from ladder.course.lessons import PICTURES, picture
    from ladder.show import plots

    choices = _choices(options)
    if options.name is None:
        if options.out is not None:
            raise LadderError(
                "--out says where to write a picture, but none is named", "ladder plot lists them"
            )
        table = Table(box=None, show_header=False, pad_edge=False)
        for name, named in PICTURES.items():
            table.add_row(name, named.text)
        console.print(table)
        return 0
    path = options.out or Path(f"{options.name}.png")
    plots.check_kind(path)
    files.require_target(path)
    with steps("Drawing", 1, elsewhere=False) as progress, progress.step(options.name):
        plots.save(picture(options.name, **choices), path)
    say_written(path)
    return 0
