"""A kernel as the debugger sees it: instructions, and the lines that they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ladder.debugger.debug_info import DebugInfo

#: Of each instruction: its function, line of PTX and text, and its positions in the source, the innermost
#: first: file, line, column, function.
Rows = Sequence[tuple[str, int, str, Sequence[tuple[str, int, int, str]]]]


class Kernel:
    """A kernel's instructions, and its variables."""

    def __init__(self, rows: Rows, info: DebugInfo) -> None:
        self.rows = rows
        self.info = info
        self.starts = first_instructions(rows)
        #: By file: the lines with code, those of the module's other kernels, too.
        self.lines = {file: set(of_file) for file, of_file in self.starts.items()}
        for _, file, line in info.code:
            self.lines.setdefault(file, set()).add(line)


def first_instructions(rows: Rows) -> dict[str, dict[int, list[int]]]:
    """By file and line: the instructions at which a breakpoint on the line stops."""
    starts: dict[str, dict[int, list[int]]] = {}
    seen = set()
    before: tuple[Any, ...] = ()
    for number, (function, _, _, positions) in enumerate(rows):
        if not positions or not positions[0][1]:
            continue
        file, line = positions[0][:2]
        here = (function, file, line, *(place[1:3] for place in positions[1:]))
        if here != before and here not in seen:
            seen.add(here)
            starts.setdefault(file, {}).setdefault(line, []).append(number)
        before = here
    return starts
