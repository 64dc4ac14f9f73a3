"""What ends a launch: PTX that is malformed, and operations that a GPU rejects or leaves undefined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ladder.errors import ExecutionError, LadderError
from ladder.run.emulator.plain_data import of_type, whole_numbers


class PtxError(LadderError, ValueError):
    """The PTX is malformed at ``line`` (1-based); ``text`` says how."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"PTX line {line}: {text}" if line else text)
        self.line = line
        self.text = text


@dataclass(frozen=True)
class Fault:
    """An operation of a kernel that a GPU rejects or leaves undefined, and its place.

    ``file`` and ``line`` locate the instruction, ``kernel_file`` and ``kernel_line`` the kernel's line that
    it was inlined into, ``own_line`` the innermost line in ``kernel_file``; without ``-lineinfo`` they are
    empty and 0. ``warp`` and ``lane`` are -1 if no single one is to blame; ``address`` is None if none is
    involved.
    """

    kind: str
    message: str
    kernel: str
    block: tuple[int, int, int]
    warp: int
    lane: int
    thread: tuple[int, int, int]
    address: int | None
    opcode: str
    file: str
    line: int
    kernel_file: str
    kernel_line: int
    own_line: int
    ptx_line: int
    text: str

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Fault:
        """The fault that ``vars(fault)`` described, by way of JSON; some exception for anything else."""
        checked: dict[str, Any] = {name: whole_numbers(data[name], 3) for name in ("block", "thread")}
        for name in data.keys() - checked:
            checked[name] = of_type((int, str, type(None)), data[name])
        return cls(**checked)

    def __str__(self) -> str:
        return self.text


class FaultError(ExecutionError):
    """A launch ended in ``fault``."""

    def __init__(self, fault: Fault, hint: str = "") -> None:
        super().__init__(fault.text, hint)
        self.fault = fault
