"""Sessions: a virtual GPU for the process, whose launches are recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from ladder.run.emulator import variables
from ladder.run.emulator.faults import Fault
from ladder.run.emulator.findings import Finding, parse_findings
from ladder.run.emulator.launches import Launch
from ladder.run.emulator.library import library

DEFAULT_ARCH = "sm_80"


#: (address, bytes, name for messages, whether kernels may write to it).
MemoryRange = tuple[int, int, str, bool]


@dataclass
class Session:
    """The launches since :func:`session` began; once it has ended, also the sanitizer's findings."""

    arch: str
    _session: Any = field(repr=False)

    @property
    def launches(self) -> list[Launch]:
        return [Launch(record) for record in self._session.launches()]

    @property
    def findings_json(self) -> str:
        """What the sanitizer says, faults and remarks, for :func:`ladder.run.emulator.parse_findings`; empty
        until the session has ended.
        """
        return str(self._session.findings())

    @property
    def findings(self) -> list[Finding]:
        """The findings of a session with ``check``; empty until the session has ended."""
        return parse_findings(self.findings_json)[0]

    @property
    def host_uses(self) -> list[tuple[str, str]]:
        """What the program's own code did with device memory in a session with ``watch_host``: the memory's
        name, "" if the program allocated it, and ``touched``, ``copied to the host`` or ``copied from the
        host``. Empty until the session has ended.
        """
        return list(self._session.host_uses())

    @property
    def timed(self) -> list[dict[str, Any]]:
        """What the model of time found of each launch, in a session with ``timing``; empty until the session
        has ended.
        """
        return list(self._session.timed())


#: A process has one device, so sessions of other threads wait. One thread may nest sessions.
_one_at_a_time = threading.RLock()


@contextmanager
def session(
    arch: str = DEFAULT_ARCH,
    memory: Sequence[MemoryRange] = (),
    threads: int | None = None,
    check: bool = False,
    backwards: bool = False,
    unwritten: int = 0xFF,
    skip_kernels: bool = False,
    first_blocks: int = 0,
    last_blocks: int = 0,
    multiprocessors: int = 0,
    watch_host: bool = False,
    instruction_limit: int = 0,
    filled: Sequence[tuple[int, int]] = (),
    timing: Mapping[str, float] | None = None,
    blocks: Sequence[int] = (),
) -> Iterator[Session]:
    """Gives the process a virtual GPU of this architecture for the duration of the block.

    ``memory`` lists the memory that kernels may use besides CUDA allocations: (address, bytes, name,
    writable). ``threads`` is the number of host threads (None: ``LADDER_THREADS``, else all cores); results
    do not depend on it. ``check`` turns the sanitizer on: it records faults, lets kernels continue where
    possible, and takes all writable memory for outputs that must be written. ``backwards`` runs blocks, and
    the warps of each block, from last to first, but interrupts every second block soon after its start until
    the next one has run; it uses one host thread, so that the order is the same on every machine.
    ``unwritten`` is the value of every byte that has not been written (0xFF is NaN in every format). A
    correct kernel's results depend on neither. ``skip_kernels`` validates launches without running them, so
    that only the host writes. Unless both are 0, only so many ``first_blocks`` or ``last_blocks`` (or
    clusters) of a launch run, and the GPU has a multiprocessor for each block. Unless it is 0, the GPU has so
    many ``multiprocessors``. ``watch_host`` closes ``memory``, whose pages must hold nothing else, and what
    the program allocates on the device to the program's own code. A warp that has executed
    ``instruction_limit`` instructions ends its launch (0: see :func:`ladder.run.emulator.instruction_limit`).
    ``filled`` lists the parts of ``memory``, as (address, bytes), whose contents count as written before the
    first launch. With ``timing``, the parameters of the model of time, only the blocks of each launch run
    that are on one multiprocessor at a time, and the model replays them for as many ``blocks`` as a
    multiprocessor runs, by launch.

    Starting a session clears an earlier fault. Ctrl-C during a launch ends it and raises KeyboardInterrupt
    here. The call waits for sessions of other threads.

    Raises ValueError for an unknown architecture, or for memory ranges that partly overlap.
    """
    with _one_at_a_time:
        handle = library.Session(
            arch=arch,
            memory=list(memory),
            threads=variables.number(variables.THREADS, 0) if threads is None else threads,
            instruction_limit=instruction_limit
            or variables.most_instructions(library.default_instruction_limit),
            check=check,
            backwards=backwards,
            unwritten=unwritten,
            skip_kernels=skip_kernels,
            first_blocks=first_blocks,
            last_blocks=last_blocks,
            multiprocessors=multiprocessors,
            watch_host=watch_host,
            filled=list(filled),
            timing=dict(timing or {}),
            blocks=list(blocks),
        )
        try:
            yield Session(arch, handle)
        finally:
            handle.end()
            library.raise_interrupt()


def last_fault() -> Fault | None:
    """The fault of the last faulty launch, or None if there was none since the session began."""
    found = library.last_fault()
    return Fault(**found) if found else None


def merged_memory(memory: Sequence[MemoryRange]) -> list[MemoryRange]:
    """Merges ranges that overlap, as those of several views of one tensor may."""
    merged: list[MemoryRange] = []
    for address, size, name, writable in sorted(memory):
        if merged and address < merged[-1][0] + merged[-1][1]:
            begin, known, first, may_write = merged[-1]
            end = max(begin + known, address + size)
            merged[-1] = (
                begin,
                end - begin,
                first if name == first else f"{first}, {name}",
                may_write or writable,
            )
        else:
            merged.append((address, size, name, writable))
    return merged


@dataclass(frozen=True)
class VirtualGpu:
    """A GPU that can be emulated."""

    arch: str
    name: str
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes_per_block_opt_in: int
    shared_bytes_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    registers_per_multiprocessor: int


def virtual_gpus() -> list[VirtualGpu]:
    """The GPUs that can be named as ``arch``."""
    names = [f.name for f in fields(VirtualGpu)]
    return [VirtualGpu(**{name: gpu[name] for name in names}) for gpu in library.gpus()]
