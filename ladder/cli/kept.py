"""Commands for which torch is kept in memory: its import takes longer than the check of a small kernel.

On a terminal such a command runs in a child of a process that has imported torch and nothing of ladder: see
:mod:`ladder.common.fork_server`. The first such command that has imported torch starts that process. It ends
when none has been run for :data:`IDLE_S`. With ``LADDER_KEEP=0`` every command runs in its own process.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ladder.common import cache, fork_server

IDLE_S = 600.0
_SWITCH = "LADDER_KEEP"
_COMMANDS = (["exercise", "check"],)
_PROGRAM = "ladder.cli.program"
#: A socket's path may have no more bytes, less those of ``.PID`` behind it.
_MOST_BYTES = 107 - 8
#: Variables that libraries read when they are loaded.
_READ_EARLY = (
    *("LD_", "LANG", "LC_", "TZ", "TMP", "TEMP", "MALLOC_", "GLIBC_"),
    *("PYTHON", "PYTORCH", "TORCH", "ATEN_", "CUDA", "NVIDIA_", "NPY_", "NUMPY_"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "GOTO_", "DNNL_", "ONEDNN_"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line, where torch is kept if it may be, and returns its exit code."""
    path = socket_path() if arguments is None and _may_be_kept(sys.argv[1:]) else None
    if path is None:
        return _run(arguments)
    try:
        code = _ask(path)
    except KeyboardInterrupt:  # a second one, while the command ends
        return 130
    if code is None:
        code = _run()
        if "torch" in sys.modules:
            start(path)
    return code


def _may_be_kept(words: Sequence[str]) -> bool:
    if [*words[:2]] not in _COMMANDS or os.environ.get(_SWITCH) == "0":
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _run(arguments: Sequence[str] | None = None) -> int:
    from ladder.cli import program

    return program.main(arguments)


def socket_path() -> Path | None:
    """Where a process that keeps torch for one like this listens; None if there can be none."""
    with suppress(OSError, importlib.metadata.PackageNotFoundError):
        path = cache.root() / f"kept-{_surroundings()}.socket"
        if len(os.fsencode(path)) <= _MOST_BYTES:
            return path
    return None


def _ask(path: Path) -> int | None:
    """The exit code of this command in a child of the process at ``path``; None if there is none."""
    with suppress(OSError):
        if connection := _connection(path):
            return _answer(connection)
    return None


def _answer(connection: socket.socket) -> int | None:
    data = json.dumps([_PROGRAM, sys.argv, dict(os.environ), os.getcwd(), sys.path]).encode()
    with connection:
        socket.send_fds(connection, [fork_server.SIZE.pack(len(data))], [0, 1, 2])
        connection.sendall(data)
        try:
            answer = connection.recv(2, socket.MSG_WAITALL)
        except KeyboardInterrupt:
            answer = bytes([130])  # and not once more, even if the child cannot say so
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(2, socket.MSG_WAITALL) or answer
    return answer[0] if answer else None


def _surroundings() -> str:
    """A digest of what a process has from its beginning, which a child of another one cannot change."""
    umask = os.umask(0o077)
    os.umask(umask)
    kinds = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    limits = [resource.getrlimit(getattr(resource, name)) for name in kinds]
    early = sorted(item for item in os.environ.items() if item[0].startswith(_READ_EARLY))
    facts = (
        sys.executable,
        sys.prefix,
        sys.version,
        sys.path,
        Path(fork_server.__file__).read_bytes(),
        _installed(),
        _container(),
        early,
        limits,
        umask,
        os.getuid(),
        os.getgid(),
        os.getgroups(),
        os.nice(0),
    )
    return cache.digest([repr((*facts, sorted(os.sched_getaffinity(0))))])


def _installed() -> list[tuple[str, int]]:
    """What changes when a package is installed, upgraded or removed beside those that are kept."""
    found = [importlib.metadata.distribution(name) for name in fork_server.KEPT]
    return [(one.version, os.stat(str(one.locate_file(""))).st_mtime_ns) for one in found]


def _container() -> list[str]:
    """What differs between machines and containers that share a cache, and between jobs of a cluster."""
    root = os.stat("/")
    spaces = [os.readlink(one) for one in sorted(Path("/proc/self/ns").iterdir())]
    files = ("/proc/self/cgroup", "/proc/sys/kernel/random/boot_id")
    return [*spaces, f"{root.st_dev} {root.st_ino}", *(Path(one).read_text() for one in files)]


def start(path: Path) -> None:
    """Starts the process that listens at ``path``, without waiting for it."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from ladder.common.fork_server import serve_commands; "
        f"serve_commands({str(path)!r}, {IDLE_S})"
    )
    null = subprocess.DEVNULL
    command = [sys.executable, "-c", program]
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/")


def _connection(path: Path) -> socket.socket | None:
    """A connection to a process of this user; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
        size = struct.calcsize("3i")
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if user == os.getuid():
            return connection
    except OSError:
        pass
    connection.close()
    return None
