"""The command's two streams, be they a narrow terminal, a pipe that ends early, ASCII-only, or closed."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ladder.errors import LadderError


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # the command says with what it ends


console = _Console()
errors = _Console(stderr=True)


def prepare_streams() -> None:
    """Makes all output writable, in any encoding, even where a stream is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def drop_output() -> None:
    """Gives up on standard output, so that the process does not try to flush it again when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def source_width() -> int | None:
    """The width at which source is cut off: the terminal's, None in a file or a pipe."""
    return console.width if console.is_terminal else None


def print_table(table: Table) -> None:
    """Prints a table with nothing cut off; a terminal that is narrower breaks its lines."""
    wide = Console(width=10_000)
    needed = Measurement.get(wide, wide.options, table).maximum
    if isinstance(table.title, Text):
        needed = max(needed, table.title.cell_len)
    _Console(width=max(console.width, needed)).print(table)


def show_error(error: LadderError, stage: str = "") -> None:
    """Says what is wrong and what to do, on stderr; ``stage`` is named where the message does not."""
    where = "" if not stage or stage in error.message.partition("\n")[0] else f"{stage}: "
    errors.print(f"[bold red]error:[/] {where}{escape(error.message)}", highlight=False, soft_wrap=True)
    if error.hint:
        errors.print(escape(error.hint), highlight=False, soft_wrap=True)
