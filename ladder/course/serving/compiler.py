"""Compiles sources that clients send to PTX. It executes nothing of them.

Each compiler is confined (:mod:`ladder.compile.confining`): it writes only in its own empty folder and reads
only what the kernel needs.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ladder.common import cache, sandbox
from ladder.common.isolation import Child, ProcessEnded
from ladder.compile import (
    DebugTarget,
    EmulatorTarget,
    pinned_nvcc,
    ptx_command,
    run_compiler,
    shortened,
    system_folders,
)
from ladder.course.serving.stepping import debugging_tables
from ladder.errors import LadderError
from ladder.stages import OptionValue, Stage, include_directory

_PTX = "kernel.ptx"
#: What the process that makes tables for steps has loaded before it is confined.
_TABLES = ("ladder.course.serving.stepping",)


@dataclass(frozen=True)
class Kernel:
    """A kernel whose source may be compiled, for one architecture: a rung's with fixed options, or that of a
    program, which has no ``stage``.
    """

    stage: Stage | None
    arch: str
    options: Mapping[str, OptionValue]

    @property
    def file(self) -> str:
        """The name of its source."""
        return "kernel.cu" if self.stage is not None else "program.cu"

    def command(self, *, steps: bool = False) -> list[str]:
        """The beginning of a command that compiles its source to PTX; with ``steps`` as ``nvcc -G`` does."""
        target = (DebugTarget if steps else EmulatorTarget)(self.arch)
        if self.stage is not None:
            return ptx_command(self.stage, target, self.options)
        flags = target.kernel_flags([*target.flags(), *target.program_flags()])
        return [str(target.nvcc().path), *flags, "-ptx"]

    @property
    def folders(self) -> list[Path]:
        """Of headers that it may include, besides the system's and the toolkit's."""
        if self.stage is not None:
            return [include_directory(), self.stage.path]
        return EmulatorTarget(self.arch).header_folders()


@dataclass(frozen=True)
class Limits:
    """``jobs`` compilers run at a time; of further sources ``waiting`` may wait, and ``kept`` answers are
    kept. A source has at most ``source_bytes``.
    """

    jobs: int = 0
    waiting: int = 200
    kept: int = 200
    source_bytes: int = 200_000
    ptx_bytes: int = 8 * 2**20
    memory_bytes: int = 4 * 2**30
    seconds: int = 60


@dataclass(frozen=True)
class Answer:
    """The PTX of a source, or the compiler's ``error`` and its ``line``, 0 if that is not the source's. PTX
    for steps has ``tables``, see :func:`ladder.course.serving.stepping.debugging_tables`.
    """

    ptx: str = ""
    tables: Mapping[str, Any] | None = None
    error: str = ""
    line: int = 0

    def json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


class Busy(LadderError):
    """Too many sources wait."""


class Compiler:
    """Compiles sources of kernels; the same source once. Close it at the end.

    Raises :class:`LadderError` if this system cannot confine a compiler.
    """

    def __init__(self, kernels: Mapping[str, Kernel], limits: Limits | None = None) -> None:
        self.kernels = kernels
        self.limits = limits or Limits()
        self._home = pinned_nvcc().home
        self._answers: OrderedDict[str, Future[Answer]] = OrderedDict()
        self._lock = threading.Lock()
        #: What a compiler may do on this system besides compiling, as in "use the network".
        self.gaps = self._gaps()
        self._jobs = self.limits.jobs or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._jobs)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def answer(self, name: str, source: str, *, steps: bool = False) -> Answer:
        """Compiles the source of the kernel of this name, or returns what it compiled to before. Raises
        :class:`LadderError` for what no compiler is given, and :class:`Busy`.
        """
        if name not in self.kernels:
            raise LadderError(f"there is no kernel {name!r} here")
        data = source.encode("utf-8", "replace")
        if len(data) > self.limits.source_bytes:
            raise LadderError(f"the source has more than {self.limits.source_bytes:,} bytes")
        future = self._future(name, data, steps)
        try:
            return future.result()
        except CancelledError as error:
            raise Busy("the server is being closed") from error
        except BaseException:  # such as too long a time, which another try may not take
            self._forget(future)
            raise

    def _future(self, name: str, source: bytes, steps: bool) -> Future[Answer]:
        key = cache.digest([name, str(steps), source])
        with self._lock:
            if key not in self._answers:
                waiting = sum(not one.done() for one in self._answers.values())
                if waiting >= self._jobs + self.limits.waiting:
                    raise Busy(f"{waiting} sources are being compiled or wait; try again soon")
                self._answers[key] = self._pool.submit(self._compile, self.kernels[name], source, steps)
            self._answers.move_to_end(key)
            for old in [key for key, one in self._answers.items() if one.done()][: -self.limits.kept]:
                del self._answers[old]
            return self._answers[key]

    def _forget(self, future: Future[Answer]) -> None:
        with self._lock:
            for key in [key for key, one in self._answers.items() if one is future]:
                del self._answers[key]

    def _compile(self, kernel: Kernel, source: bytes, steps: bool) -> Answer:
        with tempfile.TemporaryDirectory(prefix="ladder-") as name:
            folder = Path(name).resolve()
            (folder / kernel.file).write_bytes(source)
            command = [*kernel.command(steps=steps), "-w", kernel.file, "-o", _PTX]
            code, messages = self._run(command, folder, kernel)
            if code != 0:
                return _error(self._without_places(messages, folder, kernel), kernel.file)
            ptx = folder / _PTX
            if ptx.stat().st_size > self.limits.ptx_bytes:
                raise LadderError(f"its PTX has more than {self.limits.ptx_bytes:,} bytes")
            text = without_folders(ptx.read_text(errors="replace"))
            return Answer(text, self._tables(text, kernel.arch, folder) if steps else None)

    def _tables(self, ptx: str, arch: str, folder: Path) -> Mapping[str, Any]:
        """Made in a process of its own, since the PTX is a client's."""
        with Child(preload=_TABLES, folder=folder, memory_bytes=self.limits.memory_bytes) as child:
            return dict(child.ask(debugging_tables, ptx, arch, seconds=self.limits.seconds))

    def _run(self, command: list[str], folder: Path, kernel: Kernel) -> tuple[int, str]:
        """The exit code and the messages of a compiler that may do little."""
        limits = self.limits
        environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "HOME": str(folder), "LC_ALL": "C"}
        try:
            return run_compiler(
                *(command, folder, folder, environment, kernel.folders),
                memory_bytes=limits.memory_bytes,
                seconds=limits.seconds,
                wall_seconds=limits.seconds,
            )
        except ProcessEnded as error:
            raise LadderError(f"the compiler was stopped: {error.message}") from error

    def _gaps(self) -> list[str]:
        with (
            tempfile.TemporaryDirectory() as name,
            Child(folder=Path(name), readable=system_folders()) as child,
        ):
            if sandbox.NO_READS not in child.protections:
                raise LadderError(
                    "this system cannot confine what a compiler reads, so it compiles for no other machine",
                    "Linux 5.13 or newer with Landlock can. Serve the folder without a compiler: python -m "
                    "http.server",
                )
            return sandbox.missing(child.protections)

    def _without_places(self, messages: str, folder: Path, kernel: Kernel) -> str:
        """The messages without the names of this machine's folders."""
        for place in (folder, *kernel.folders, self._home):
            messages = messages.replace(f"{place}/", "")
        return messages


def _error(messages: str, file: str) -> Answer:
    text = shortened(messages)
    line = re.search(rf"^{re.escape(file)}[(:](\d+)", text, re.MULTILINE)
    return Answer(error=text or "the compiler has failed without a message", line=int(line[1]) if line else 0)


def without_folders(ptx: str) -> str:
    """A PTX text without the folders of source files, which are those of the machine that compiled it."""
    return re.sub(r'(\.file\s+\d+\s+")[^"]*/', r"\1", ptx)
