"""Options that several subcommands share, and their interpretation."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.cli import problems
from ladder.cli.problems import problem_of
from ladder.errors import LadderError
from ladder.stages import ARCHITECTURES

if TYPE_CHECKING:
    from ladder.counts.time import Gpu
    from ladder.operations import AnyProblem, Operation


def add_problem_options(parser: argparse.ArgumentParser, with_target: bool = True) -> None:
    """Adds the options that describe a problem and, ``with_target``, those that say where it runs."""
    problems.add_problem_options(parser)
    if with_target:
        add_target_options(parser)


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    parser.set_defaults(run=run)
    return parser


def add_target_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where")
    group.add_argument("--backend", default="auto", help="auto (a GPU if there is one), emulator or cuda")
    group.add_argument("--arch", help=f"virtual GPU of the emulator: {', '.join(ARCHITECTURES)}")
    add_option_option(group)


def add_option_option(group: Any) -> None:
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the stage's stage.toml",
    )


def add_flags_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nvcc-flags",
        action="append",
        default=[],
        metavar="FLAGS",
        help='any more for the compiler, behind its own: --nvcc-flags="-O1 --extended-lambda"',
    )


def nvcc_flags(options: argparse.Namespace) -> list[str]:
    """The words of ``--nvcc-flags``. Raises :class:`LadderError`."""
    try:
        return [word for flags in options.nvcc_flags for word in shlex.split(flags)]
    except ValueError as error:
        raise LadderError(
            f"--nvcc-flags cannot be taken apart: {error}", 'For example --nvcc-flags="-O1 --extended-lambda"'
        ) from None


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", metavar="FILE", help="also write the rows there as JSON; - prints only them"
    )


def add_time_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--time", metavar="GPU", help=f"also the least time on this GPU (h100, ...), and {what}"
    )


def time_gpu(options: argparse.Namespace) -> Gpu | None:
    """The GPU of ``--time``. Raises :class:`LadderError` if it is unknown."""
    from ladder.counts.time import load_gpu

    return None if options.time is None else load_gpu(options.time)


def add_picture_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--picture", type=Path, metavar="FILE", help="also write it as .png, .svg or .pdf")


def not_negative(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 0")
    return int(text)


def read_problem(options: argparse.Namespace, operation: Operation) -> AnyProblem:
    """The problem that the options describe; sizes not given are the backend's defaults."""
    from ladder.run.backends import get_backend

    return problem_of(options, operation, get_backend(options.backend).default_problem(operation))


def chosen_options(options: argparse.Namespace) -> dict[str, str]:
    from ladder.stages import parse_options

    return parse_options(",".join(options.option))


def require_emulator(options: argparse.Namespace, what: str) -> None:
    """Selects the emulator, and with it small default problems.

    Raises :class:`LadderError` if the user chose another backend.
    """
    if options.backend not in ("auto", "emulator"):
        raise LadderError(f"--backend {options.backend}: only the emulator {what}", "Leave it out.")
    options.backend = "emulator"
