"""One run of an extension on the emulator, in this process or in one of its own, on memory that is given.

It needs no torch, so that a new process begins quickly.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.common.files import MAP_NORESERVE
from ladder.errors import ExecutionError
from ladder.run import emulator
from ladder.run.backends.extension import launch
from ladder.run.emulator import Fault, FaultError, Launch, MemoryRange

#: cudaStreamPerThread. The emulator, when it watches the host, notes what a stage does on another one.
_GIVEN_STREAM = 2


@dataclass(frozen=True)
class Lent:
    """A tensor's memory: its name, the offset or address of its first byte, its size, and whether a stage may
    write it.
    """

    name: str
    begin: int
    bytes: int
    is_writable: bool


@dataclass(frozen=True)
class Emulation:
    """What a run left besides the outputs; ``findings`` are the sanitizer's, as JSON.

    ``host_uses`` is what the host's code did with the tensors: :attr:`ladder.run.emulator.Session.host_uses`;
    ``timed`` what the model of time found: :attr:`ladder.run.emulator.Session.timed`.
    """

    launches: Sequence[Launch] = ()
    findings: str = "[]"
    host_uses: Sequence[tuple[str, str]] = field(default_factory=list)
    failure: ExecutionError | None = None
    timed: Sequence[Mapping[str, Any]] = ()

    def as_data(self, *, details: bool) -> dict[str, Any]:
        """The emulation as JSON can hold it."""
        failure = self.failure
        fault = failure.fault if isinstance(failure, FaultError) else None
        return {
            "launches": [one.as_data(details=details) for one in self.launches],
            "findings": self.findings,
            "host_uses": list(self.host_uses),
            "timed": list(self.timed),
            "failure": None if failure is None else [failure.message, failure.hint, fault and vars(fault)],
        }

    @classmethod
    def from_data(cls, data: Any) -> Emulation:
        """The emulation that :meth:`as_data` described. Raises some exception for anything else."""
        failure: ExecutionError | None = None
        if data["failure"] is not None:
            message, hint, fault = data["failure"]
            failure = ExecutionError(str(message), str(hint))
            if fault is not None:
                failure = FaultError(Fault.from_data(fault), str(hint))
        uses = [(str(name), str(use)) for name, use in data["host_uses"]]
        launches, timed = (
            [*map(Launch.from_data, data["launches"])],
            [dict(one) for one in data.get("timed", ())],
        )
        return cls(launches, str(data["findings"]), uses, failure, timed)


def emulate(
    extension: Path, memory: Sequence[Lent], arguments: Mapping[str, Any], session: Mapping[str, Any]
) -> Emulation:
    """Calls the extension's ``launch`` once in a session of the emulator with these parameters.

    Raises :class:`UnsupportedProblem` if the stage refuses the problem.
    """
    failure: ExecutionError | None = None
    addresses = {one.name: one.begin for one in memory}
    ranges: list[MemoryRange] = [
        (one.begin, one.bytes, one.name, one.is_writable) for one in memory if one.bytes
    ]
    with emulator.session(memory=emulator.merged_memory(ranges), **session) as opened:
        try:
            launch(extension, addresses, arguments, stream=_GIVEN_STREAM)
        except ExecutionError as error:
            fault = emulator.last_fault()
            failure = FaultError(fault) if fault else error
        else:
            if fault := emulator.last_fault():
                failure = FaultError(fault, "The stage went on: it did not look at cudaGetLastError().")
        launches = opened.launches
    return Emulation(launches, opened.findings_json, opened.host_uses, failure, opened.timed)


def emulate_shared(
    extension: Path,
    memory: Sequence[Lent],
    arguments: Mapping[str, Any],
    session: Mapping[str, Any],
    details: bool,
    arena: int,
) -> dict[str, Any]:
    """Like :func:`emulate`, in a process of its own: ``arena`` is a descriptor of the memory, in which the
    tensors have offsets.
    """
    with _mapped(arena) as base:
        placed = [
            Lent(one.name, base + one.begin if one.begin >= 0 else 0, one.bytes, one.is_writable)
            for one in memory
        ]
        return emulate(extension, placed, arguments, session).as_data(details=details)


@contextmanager
def _mapped(descriptor: int) -> Iterator[int]:
    """Maps the whole file for the duration of the block; yields its address."""
    memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | MAP_NORESERVE)
    first = ctypes.c_char.from_buffer(memory)
    try:
        yield ctypes.addressof(first)
    finally:
        del first
        memory.close()
