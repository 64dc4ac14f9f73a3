"""``ladder new``: makes a copy of a rung to work on."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from ladder.cli.options import add_command
from ladder.common.terminal import console


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(
        commands, "new", _run, "make a rung of your own: a working copy of one that is there"
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--from", dest="origin", required=True, metavar="STAGE", help="what to start from")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where to put it (my_rungs, here or in a folder above)"
    )


def _run(options: argparse.Namespace) -> int:
    from ladder.stages import OWN_STAGES, discover, new_stage, own_folder

    stage = new_stage(options.name, options.origin, options.folder)
    folder = stage.path.parent
    lines = [f"{stage.kernel} is yours to change."]
    if own_folder(OWN_STAGES) == folder:
        lines.append(f"It is a rung wherever you are in {folder.parent}.")
    elif stage.name not in [found.name for found in discover()]:
        lines.append(f"To have it found there: export LADDER_STAGES={shlex.quote(str(folder))}")
    lines += [f"  ladder compare {options.origin} {stage.name}", f"  ladder lines {stage.name}"]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    return 0
