"""The command's output streams: a narrow terminal, a pipe that closes early, ASCII-only, or closed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from typing import NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ladder.errors import LadderError

#: Characters that a terminal obeys instead of showing them, and what stands for them: ESC and the other C0
#: controls, C1 controls, and marks that reverse the direction of text.
_OBEYED = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd"),
}


class SafeConsole(Console):
    """A console on which names from files, kernels and reports cannot act as commands to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(_OBEYED), style, control)


class _Console(SafeConsole):
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # run_until_closed() turns this into the exit code


console = _Console()
errors = _Console(stderr=True)


def prepare_streams() -> None:
    """Makes stdout and stderr accept any text, whatever their encoding and even if they are closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open until the process exits
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def source_width() -> int | None:
    """The width at which source is cut off: the terminal's, or None for a file or a pipe."""
    return console.width if console.is_terminal else None


def print_table(table: Table) -> None:
    """Prints a table in full; a terminal that is too narrow wraps its lines."""
    wide = Console(width=10_000)
    needed = Measurement.get(wide, wide.options, table).maximum
    if isinstance(table.title, Text):
        needed = max(needed, table.title.cell_len)
    _Console(width=max(console.width, needed)).print(table)


def show_error(error: LadderError, stage: str = "") -> None:
    """Prints an error and its hint on stderr, naming ``stage`` unless the message does."""
    where = "" if not stage or stage in error.message.partition("\n")[0] else f"{stage}: "
    errors.print(f"[bold red]error:[/] {where}{escape(error.message)}", highlight=False, soft_wrap=True)
    if error.hint:
        errors.print(escape(error.hint), highlight=False, soft_wrap=True)
