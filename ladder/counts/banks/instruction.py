"""An instruction of a launch and its place in the source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SourceInstruction:
    """A PTX instruction with the number of its executions by warps over the launch."""

    number: int
    ptx: str
    file: Path
    line: int
    kernel_file: Path
    kernel_line: int
    own_line: int
    executed: int

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """File and line of the instruction, and of the kernel's lines that call it, the innermost first."""
        kernel = self.kernel_file.name
        return (self.file.name, self.line), (kernel, self.own_line), (kernel, self.kernel_line)

    def source_line(self, file_name: str, line: int) -> tuple[Path, str]:
        """The file of one of the places, and the line's text."""
        path = self.kernel_file if (file_name, line) in self.places[1:] else self.file
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        return path, lines[line - 1].strip() if line <= len(lines) else ""


def source_fields(number: int, row: Any) -> dict[str, Any]:
    """The fields of instruction ``number`` from its row of :meth:`Launch.instructions`."""
    return {
        "number": number,
        "ptx": str(row["ptx"]).strip(),
        **{name: Path(str(row[name])) for name in ("file", "kernel_file")},
        **{name: int(row[name]) for name in ("line", "kernel_line", "own_line", "executed")},
    }
