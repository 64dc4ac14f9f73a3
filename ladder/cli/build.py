"""``ladder build``: builds stages without running them."""

from __future__ import annotations

import argparse
from typing import Any

from ladder.cli.options import add_command, add_target_options, chosen_options
from ladder.common.terminal import console, show_error
from ladder.errors import LadderError


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    parser = add_command(commands, "build", _run, "build stages without running them")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: all")
    add_target_options(parser)


def _run(options: argparse.Namespace) -> int:
    from ladder.compile import build_all
    from ladder.run.backends import get_backend
    from ladder.stages import discover

    ladder = discover()
    backend = get_backend(options.backend)
    wanted = [ladder[name] for name in options.stages] if options.stages else list(ladder)
    broken: list[LadderError] = [] if options.stages else list(ladder.broken.values())
    results = build_all(
        wanted,
        {stage.name: backend.target(stage, options.arch) for stage in wanted},
        {stage.name: stage.chosen_options(chosen_options(options)) for stage in wanted},
    )
    for name, result in results.items():
        if isinstance(result, LadderError):
            broken.append(result)
        else:
            console.print(f"{name}  {result}", highlight=False, soft_wrap=True)
    for error in broken:
        show_error(error)
    return 1 if broken else 0
