"""``ladder torch``: runs a PyTorch script for CUDA on the emulated GPU."""

from __future__ import annotations

import argparse
from typing import Any

from ladder.cli.options import add_command


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    from ladder.call.torch import DESCRIPTION, add_options

    add_options(add_command(commands, "torch", _run, DESCRIPTION))


def _run(options: argparse.Namespace) -> int:
    from ladder.call.torch import run

    return run(options)
