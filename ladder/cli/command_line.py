"""The parser of the command ``ladder``, assembled from the subcommands' modules."""

from __future__ import annotations

import argparse
from typing import Any

from ladder import project
from ladder.cli import (
    bank,
    build,
    check,
    classroom,
    compare,
    debug,
    doctor,
    emulate,
    exercise,
    explain,
    lab,
    lines,
    new,
    plot,
    port,
    profile,
    report,
    run,
    serve,
    stages,
    time,
    torch,
    verify,
    wheelhouse,
)

#: In the order of the help.
_COMMANDS = (
    *(compare, run, build, lines, explain, check, debug, bank, time, profile, report, plot, stages, doctor),
    *(new, port, exercise, classroom, lab, serve, wheelhouse, emulate, torch, verify),
)


def command_line() -> argparse.ArgumentParser:
    """Builds the parser of all subcommands; ``run`` in the parsed namespace is the subcommand's function."""
    parser = argparse.ArgumentParser(
        prog="ladder",
        description="Flash-attention kernels, rung by rung: built, run, checked and counted.",
        epilog=f"More: {project.url()}",
    )
    parser.add_argument("--version", action="version", version=f"flash-ladder {project.version()}")
    _add_commands(parser)
    return parser


def command_list() -> dict[str, str]:
    """What each subcommand does, by its name, in the order of the help."""
    commands = _add_commands(argparse.ArgumentParser())
    return {name: parser.description or "" for name, parser in commands.choices.items()}


def _add_commands(parser: argparse.ArgumentParser) -> Any:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return commands
