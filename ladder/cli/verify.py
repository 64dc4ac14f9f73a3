"""``ladder verify``: judges CUDA kernels by a reference."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.cli.options import add_command
from ladder.common.terminal import errors
from ladder.errors import InvalidProblem

if TYPE_CHECKING:
    from ladder.call.torch import Verdict

EPILOG = (
    "Prints the verdict as JSON. Returns 0 if it is right, 1 if it is wrong, 2 if it was not judged; with "
    "--kernelbench a line for each candidate, and the largest of these codes."
)


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    text = "judge CUDA kernels, in a .cu or a PyTorch module, by a reference"
    parser = add_command(commands, "verify", _run, text)
    parser.epilog = EPILOG
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="a .py, a .cu, or a folder")
    of = parser.add_mutually_exclusive_group(required=True)
    of.add_argument("--reference", type=Path, metavar="reference.py")
    of.add_argument(
        "--kernelbench", type=Path, metavar="FOLDER", help="holds level1/NN_name.py; CANDIDATE is a folder"
    )
    parser.add_argument("--launch", type=Path, metavar="FILE", help="describes the launch of a .cu, as TOML")
    parser.add_argument(
        "--with",
        dest="shapes",
        action="append",
        default=[],
        metavar="NAME=N[,NAME=N]",
        help="constants of the reference, such as its sizes; again for further shapes",
    )
    parser.add_argument(
        "--shrink", action="store_true", help="make the other constants smaller; tails stay (docs/verify.md)"
    )
    parser.add_argument("--arch", default=None, help="virtual GPU (sm_80)")
    parser.add_argument(
        "--tolerance", type=float, metavar="REL", help="instead of that of the output's dtype"
    )
    parser.add_argument("--seconds", type=float, default=300, help="for all runs of a candidate (300)")
    parser.add_argument("--memory", type=float, default=4, metavar="GIB", help="per process (4)")


def constants(text: str) -> dict[str, int]:
    """Reads ``N=65,M=3``. Raises :class:`InvalidProblem`."""
    try:
        return {name.strip(): int(value) for name, value in (one.split("=") for one in text.split(","))}
    except ValueError as error:
        message = f"{text!r} does not give whole numbers to names"
        raise InvalidProblem(message, "For example: --with N=65,M=3") from error


def _run(options: argparse.Namespace) -> int:
    from ladder.call.torch import pairs

    if not options.kernelbench:
        verdict = _verdict(options, options.candidate, options.reference)
        print(verdict.as_json())
        return verdict.exit_code
    found = pairs(options.kernelbench, options.candidate)
    codes = []
    for number, (candidate, reference) in enumerate(found, 1):
        errors.print(f"{number} of {len(found)}: {candidate}", highlight=False, markup=False)
        verdict = _verdict(options, candidate, reference)
        print(verdict.as_json(candidate=str(candidate), reference=str(reference)), flush=True)
        codes.append(verdict.exit_code)
    return max(codes)


def _verdict(options: argparse.Namespace, candidate: Path, reference: Path) -> Verdict:
    from ladder.call.torch import Limits, read_launch, verify

    shapes: list[Mapping[str, int]] = [constants(text) for text in options.shapes]
    return verify(
        candidate,
        reference,
        launch=read_launch(options.launch) if options.launch else None,
        shapes=shapes,
        shrink=options.shrink,
        arch=options.arch,
        tolerance=options.tolerance,
        limits=Limits(options.seconds, int(options.memory * 2**30)),
    )
