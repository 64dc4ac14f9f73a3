"""``ladder plot``: pictures of the lessons by name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from ladder.cli.options import add_command
from ladder.common import files
from ladder.common.progress import steps
from ladder.common.terminal import console, errors
from ladder.errors import LadderError


def add(commands: Any) -> None:
    """Adds the command to those of an argparse parser."""
    parser = add_command(commands, "plot", _run, "draw a picture of the lessons; without a name, list them")
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a .png, .svg or .pdf (NAME.png)")


def _run(options: argparse.Namespace) -> int:
    from ladder import plots
    from ladder.lessons import PICTURES, picture

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
        plots.save(picture(options.name), path)
    errors.print(f"wrote {path}", style="dim", highlight=False)
    return 0
