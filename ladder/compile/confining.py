"""Compilers of sources that are not trusted. They read what a kernel needs and no more, and have limits.

Each runs in a process that has no network, writes only in its own folder, and reads only the system's
headers and programs, the CUDA toolkit and the folders that it is given (:mod:`ladder.common.sandbox`). So
``#include "/etc/passwd"`` and ``.incbin`` have nothing to show. Time, memory and files are limited, so a
macro that expands without end stops.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ladder.common import processes
from ladder.common.isolation import Child, ProcessEnded
from ladder.compile import toolchain
from ladder.errors import BuildError

#: Where a system has its compiler's programs, libraries and headers; /usr/local and the like are left out.
_SYSTEM = ("bin", "lib", "lib32", "lib64", "libexec", "include")
#: Limits the memory and the processor time of the compiler's programs, each; then becomes the compiler.
_LIMITED = 'ulimit -v "$1" && ulimit -t "$2" && cd "$3" && shift 3 && exec "$@"'
#: What each program of a compiler may take. A loaded machine may give it a second only now and then.
MEMORY_BYTES, SECONDS, _WALL_SECONDS = 4 * 2**30, 30, 300.0
#: What nvcc says of a program that a limit ended, and what such programs say themselves.
_AT_A_LIMIT = re.compile(
    r"died due to signal|signal terminated program|memory exhausted|[Oo]ut of memory|annot allocate|bad_alloc"
)

_folders: ContextVar[Sequence[Path] | None] = ContextVar("folders", default=None)


class CompilerStopped(BuildError):
    """A compiler was stopped at a limit; it would be again."""


@contextmanager
def confined(*folders: Path) -> Iterator[None]:
    """Within the block, compilers that this thread starts are confined, and read these folders."""
    token = _folders.set(folders)
    try:
        yield
    finally:
        _folders.reset(token)


def compile_as_told(
    command: Sequence[str], directory: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Runs a compiler in ``directory``, with its temporary files in ``folder``; within :func:`confined` it
    writes nowhere else. Raises :class:`CompilerStopped`.
    """
    folders = _folders.get()
    if folders is None:
        return processes.run(command, directory, folder)
    environment = {**os.environ, "TMPDIR": str(folder)}
    try:
        code, messages = run_compiler(
            *(command, directory, folder, environment, folders),
            memory_bytes=MEMORY_BYTES,
            seconds=SECONDS,
            wall_seconds=_WALL_SECONDS,
        )
    except ProcessEnded as error:
        raise CompilerStopped(f"the compiler was stopped: {error.message}", _ENDLESS) from error
    if code and _AT_A_LIMIT.search(messages):
        raise CompilerStopped(
            f"the compiler was stopped at a limit: {SECONDS} seconds, {MEMORY_BYTES >> 30} GiB of memory, or "
            "64 MiB in one file",
            _ENDLESS,
        )
    return subprocess.CompletedProcess(list(command), code, "", messages)


_ENDLESS = "Does a macro or a template expand without end?"


def run_compiler(
    command: Sequence[str],
    directory: Path,
    folder: Path,
    environment: Mapping[str, str],
    readable: Sequence[Path] = (),
    *,
    memory_bytes: int,
    seconds: int,
    wall_seconds: float,
) -> tuple[int, str]:
    """Runs a compiler, which may write in ``folder`` and reads ``readable`` besides the system; returns its
    exit code and its messages. Its programs have so many bytes and seconds each.

    Raises :class:`ProcessEnded` after ``wall_seconds`` or too much output.
    """
    words = ["/bin/sh", "-c", _LIMITED, "sh", str(memory_bytes >> 10), str(seconds), str(directory), *command]
    with Child(folder=folder, readable=[*system_folders(), *readable], keeps_output=True) as child:
        code = child.become(words, environment, wall_seconds)
        return code, child.output.decode(errors="replace")


def system_folders() -> list[Path]:
    """The folders of the system's headers and programs, and those of the compilers."""
    found = [Path(root, name) for root in ("/", "/usr") for name in _SYSTEM]
    compiler = Path(toolchain.gxx()).resolve().parent.parent
    if compiler not in (Path("/"), Path("/usr")):
        found.append(compiler)
    return [path for path in (*found, toolchain.pinned_nvcc().home) if path.is_dir()]
