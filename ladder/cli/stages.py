"""``ladder stages``: lists the stages."""

from __future__ import annotations

import argparse
from typing import Any

from ladder.cli.options import add_command
from ladder.common.terminal import console, show_error


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    add_command(commands, "stages", _run, "list the stages")


def _run(options: argparse.Namespace) -> int:
    from ladder.show.render import stages_table
    from ladder.stages import discover

    ladder = discover()
    console.print(stages_table(ladder))
    for error in ladder.broken.values():
        show_error(error)
    return 1 if ladder.broken else 0
