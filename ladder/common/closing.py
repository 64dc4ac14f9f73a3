"""Commands whose reader closes their output, as ``head`` does. Needs the standard library alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

#: The exit code then: as shells report SIGPIPE.
CLOSED = 141


def run_until_closed(command: Callable[[], int]) -> int:
    """Runs a command that prints and returns its exit code, or 141 if standard output was closed."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        drop_output()
        return CLOSED


def drop_output() -> None:
    """Abandons standard output, so that the interpreter does not try to flush it again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
