"""``ladder verify``: judges a PyTorch module with CUDA kernels by a reference."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.cli.options import add_command
from ladder.errors import InvalidProblem

EPILOG = "Prints the verdict as JSON. Returns 0 if it is right, 1 if it is wrong, 2 if it was not judged."


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    text = "judge a PyTorch module with CUDA kernels by a reference"
    parser = add_command(commands, "verify", _run, text)
    parser.epilog = EPILOG
    parser.add_argument("candidate", type=Path, metavar="candidate.py")
    parser.add_argument("--reference", type=Path, required=True, metavar="reference.py")
    parser.add_argument(
        "--with",
        dest="shapes",
        action="append",
        default=[],
        metavar="NAME=N[,NAME=N]",
        help="constants of the reference, such as its sizes; again for further shapes",
    )
    parser.add_argument("--arch", default=None, help="virtual GPU (sm_80)")
    parser.add_argument(
        "--tolerance", type=float, metavar="REL", help="instead of that of the output's dtype"
    )
    parser.add_argument("--seconds", type=float, default=300, help="for all runs (300)")
    parser.add_argument("--memory", type=float, default=4, metavar="GIB", help="per process (4)")


def constants(text: str) -> dict[str, int]:
    """Reads ``N=65,M=3``. Raises :class:`InvalidProblem`."""
    try:
        return {name.strip(): int(value) for name, value in (one.split("=") for one in text.split(","))}
    except ValueError as error:
        message = f"{text!r} does not give whole numbers to names"
        raise InvalidProblem(message, "For example: --with N=65,M=3") from error


def _run(options: argparse.Namespace) -> int:
    from ladder.call.torch import Limits, verify

    shapes: list[Mapping[str, int]] = [constants(text) for text in options.shapes]
    verdict = verify(
        options.candidate,
        options.reference,
        shapes=shapes,
        arch=options.arch,
        tolerance=options.tolerance,
        limits=Limits(options.seconds, int(options.memory * 2**30)),
    )
    print(verdict.as_json())
    return verdict.exit_code
