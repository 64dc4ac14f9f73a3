"""Builds and runs a user's CUDA program on the emulator and counts its launches."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ladder.common import processes
from ladder.common.isolation import Child
from ladder.common.progress import steps
from ladder.compile import EmulatorTarget, build_program
from ladder.errors import ExecutionError
from ladder.run.emulator import variables
from ladder.run.emulator.findings import Finding, likeliest_first, parse_findings
from ladder.run.emulator.launches import COUNTERS
from ladder.stages import DEFAULT_ARCH, require_arch

#: What a program that is not trusted may take, and how much of what it prints is kept.
_MOST_BYTES, _SHOWN_BYTES = 4 * 2**30, 1 << 16
#: Flags that let findings name the lines of host calls.
HOST_LINES = ("-Xcompiler=-g1",)
#: Signals that faulty programs die of; earlier launches are still counted.
CRASHES = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")


#: Counts of a program's kernels that are no columns of the table of stages.
_OTHERS = ("executed", "global_atomic_instructions")


@dataclass(frozen=True)
class ProgramLaunches:
    """All launches of one kernel with the same grid, block and shared memory. Unknown counters are None.

    ``lines`` has a row for each source line: its place (file, line, kernel_file, kernel_line, own_line) and
    counters. ``opcodes`` has one for each of its opcodes, ``ptx``.
    """

    kernel: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    smem_bytes: int | None
    launches: int
    counters: Mapping[str, int | None]
    lines: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    opcodes: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    def as_row(self) -> dict[str, Any]:
        """Returns one flat row for JSON."""
        shape = {"grid": self.grid, "block": self.block, "smem_bytes": self.smem_bytes}
        return {"kernel": self.kernel, **shape, "launches": self.launches, **self.counters}


@dataclass(frozen=True)
class ProgramResult:
    """How a program ended. ``fault`` describes the fault of its kernels, if any; ``findings`` are the
    sanitizer's, if it was on, as are ``remarks``, which are no faults; ``signal`` is the one that killed it,
    such as ``SIGSEGV``. ``returned`` is what main returned, of a program that was built to be judged; None if
    it ended otherwise. ``uncounted`` says how often the program called functions of libraries, whose work is
    not counted. ``is_judged`` is False if the process ended before the sanitizer's findings were written.
    """

    exit_code: int
    arch: str
    launches: tuple[ProgramLaunches, ...]
    fault: str | None
    findings: tuple[Finding, ...] = ()
    signal: str | None = None
    remarks: tuple[Finding, ...] = ()
    returned: int | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)
    is_judged: bool = True


def emulate(
    sources: Sequence[Path],
    arguments: Sequence[str] = (),
    *,
    flags: Sequence[str] = (),
    arch: str | None = None,
    check: bool = False,
    output: BinaryIO | None = None,
) -> ProgramResult:
    """Builds the ``.cu`` files into one program, runs it with ``arguments`` and returns its launches.

    The program reads and writes the caller's standard streams, or writes to ``output``. ``flags`` go to the
    compiler. ``check`` runs it under the sanitizer, as ``LADDER_CHECK=1`` does.

    Raises :class:`BuildError` if it does not build and :class:`ExecutionError` if it cannot be run.
    """
    arch = arch or DEFAULT_ARCH
    require_arch(arch)
    variables.validate()
    check = check or variables.check_is_on()
    with steps("Building", 1) as progress, progress.step(sources[0].name):
        program = build_program(sources, EmulatorTarget(arch), [*flags, *(HOST_LINES if check else ())])
    return run_program(program, arguments, arch, check=check, output=output)


def run_program(
    program: Path,
    arguments: Sequence[str],
    arch: str,
    *,
    check: bool = False,
    output: BinaryIO | None = None,
) -> ProgramResult:
    """Runs a program built by :func:`ladder.compile.build_program`."""
    return run_counted([str(program), *arguments], arch, name=program.name, check=check, output=output)


@processes.ended_by_signals()
def run_counted(
    command: Sequence[str],
    arch: str,
    *,
    name: str,
    check: bool = False,
    output: BinaryIO | None = None,
) -> ProgramResult:
    """Runs any command whose process loads the emulator, such as a script; messages call it ``name``."""
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        log = Path(directory) / "launches.json"
        environment = _environment(arch, log, check)
        exit_code = processes.run_in_foreground(command, environment, output)
        if exit_code == -signal.SIGINT:
            raise KeyboardInterrupt
        return _result(name, exit_code, arch, log)


@dataclass(frozen=True)
class ConfinedRun:
    """A run of a program that is not trusted: how it ended, what it printed, and what it had given up, see
    :func:`ladder.common.sandbox.enter`.
    """

    result: ProgramResult
    output: str
    protections: tuple[str, ...]


def run_confined(program: Path, arguments: Sequence[str], arch: str, seconds: float) -> ConfinedRun:
    """Runs such a program under the sanitizer, without a terminal, and with limits.

    Raises :class:`ProcessEnded` if it takes more than ``seconds``, or too much memory, or prints too much.
    """
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        folder = Path(directory)
        log = folder / "launches.json"
        with Child(folder=folder, memory_bytes=_MOST_BYTES, keeps_output=True) as child:
            code = child.become([str(program), *arguments], _environment(arch, log, True), seconds)
            try:
                result = _result(program.name, code, arch, log)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ExecutionError(f"{program.name} has written something else than its counts") from error
            said = child.output[:_SHOWN_BYTES].decode(errors="replace").strip()
            return ConfinedRun(result, said, tuple(child.protections))


def _environment(arch: str, log: Path, check: bool) -> dict[str, str]:
    environment = {**os.environ, variables.ARCH: arch, "LADDER_LAUNCH_LOG": str(log)}
    environment[variables.CHECK] = "1" if check else ""
    if most := variables.most_instructions(0):
        environment[variables.INSTRUCTION_LIMIT] = str(most)
    return environment


def _result(name: str, exit_code: int, arch: str, log: Path) -> ProgramResult:
    """What a program that has ended wrote into its log."""
    died_by = signal.Signals(-exit_code).name if exit_code < 0 else None
    # There is no log where CUDA was not called, and an empty one until the program's end.
    text = log.read_text(encoding="utf-8") if log.exists() else None
    if died_by and not text:
        raise ExecutionError(f"{name} was ended by {died_by}; nothing was counted")
    if text == "":
        raise ExecutionError(
            f"{name} has written no counts: it ended by _exit or quick_exit, or "
            f"{tempfile.gettempdir()} is full",
            "Return from main or call exit; TMPDIR names another folder for temporary files.",
        )
    report = json.loads(text) if text else {"arch": arch, "fault": None, "kernels": []}
    launches = tuple(
        ProgramLaunches(
            kernel=entry["kernel"],
            grid=tuple(entry["grid"]),
            block=tuple(entry["block"]),
            smem_bytes=entry["static_shared_bytes"] + entry["dynamic_shared_bytes"],
            launches=entry["launches"],
            counters={counter: entry["totals"][counter] for counter in (*_OTHERS, *COUNTERS)},
            lines=tuple(entry["lines"]),
            opcodes=tuple(entry["opcodes"]),
        )
        for entry in report["kernels"]
    )
    fault = report["fault"]
    findings, remarks = parse_findings(json.dumps(report.get("findings", [])), _block_shapes(launches))
    return ProgramResult(
        exit_code if exit_code >= 0 else 128 - exit_code,
        report["arch"],
        launches,
        fault["text"] if fault else None,
        tuple(likeliest_first(findings)),
        died_by,
        tuple(remarks),
        report.get("returned"),
        {str(name): int(calls) for name, calls in report.get("uncounted", {}).items()},
    )


def _block_shapes(launches: Sequence[ProgramLaunches]) -> dict[str, tuple[int, int, int]]:
    """The blocks' shape by kernel, where it is the same for all of a kernel's launches."""
    shapes: dict[str, set[tuple[int, int, int]]] = {}
    for one in launches:
        if one.block is not None:
            shapes.setdefault(one.kernel, set()).add(one.block)
    return {kernel: found.pop() for kernel, found in shapes.items() if len(found) == 1}
