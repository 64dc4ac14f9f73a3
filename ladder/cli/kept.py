"""Commands for which torch is kept in memory: its import takes longer than the check of a small kernel.

On a terminal such a command runs in a child of a process that has imported torch and nothing of ladder: see
:mod:`ladder.cli.kept_server`. The first such command starts that process. It ends when none has been run for
:data:`IDLE_S`. With ``LADDER_KEEP=0`` every command runs in its own process.
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
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ladder.cli.kept_server import MODULES, SIZE_BYTES
from ladder.common import cache

IDLE_S = 600.0
_SWITCH = "LADDER_KEEP"
_COMMANDS = (["exercise", "check"],)
#: A socket's path may have no more bytes.
_MOST_BYTES = 100
_STARTS_WITHIN_S = 5.0
#: Variables that libraries read when they are loaded.
_READ_EARLY = (
    *("LD_", "LANG", "LC_", "PYTHON", "TORCH", "ATEN_", "CUDA"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line, where torch is kept if it may be, and returns its exit code."""
    if arguments is None and _may_be_kept(sys.argv[1:]):
        try:
            code = _ask()
        except KeyboardInterrupt:  # a second one, while the command ends
            return 130
        if code is not None:
            return code
    from ladder.cli import program

    return program.main(arguments)


def _may_be_kept(words: Sequence[str]) -> bool:
    if [*words[:2]] not in _COMMANDS or os.environ.get(_SWITCH) == "0":
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _ask() -> int | None:
    """The exit code of this command in a child of the process that keeps torch; None if there is no such."""
    with suppress(OSError, importlib.metadata.PackageNotFoundError):
        path = cache.root() / f"kept-{_surroundings()}.socket"
        if len(os.fsencode(path)) <= _MOST_BYTES and (connection := _connected(path)):
            return _answer(connection)
    return None


def _answer(connection: socket.socket) -> int | None:
    request = {
        "arguments": sys.argv,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "path": sys.path,
    }
    data = json.dumps(request).encode()
    with connection:
        socket.send_fds(connection, [len(data).to_bytes(SIZE_BYTES, "little")], [0, 1, 2])
        connection.sendall(data)
        try:
            answer = connection.recv(2, socket.MSG_WAITALL)
        except KeyboardInterrupt:
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(2, socket.MSG_WAITALL)
    return answer[0] if answer else None


def _surroundings() -> str:
    """A digest of what a process has from its beginning, which a child of another one cannot change."""
    umask = os.umask(0o077)
    os.umask(umask)
    kinds = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    limits = [resource.getrlimit(getattr(resource, name)) for name in kinds]
    early = sorted(item for item in os.environ.items() if item[0].startswith(_READ_EARLY))
    versions = [importlib.metadata.version(name) for name in MODULES]
    facts = (
        sys.executable,
        sys.prefix,
        versions,
        early,
        limits,
        umask,
        os.getuid(),
        os.getgroups(),
        os.nice(0),
    )
    return cache.digest([repr((*facts, sorted(os.sched_getaffinity(0))))])


def _connected(path: Path) -> socket.socket | None:
    """A connection to the process at ``path``, which is started if there is none."""
    if found := _connection(path):
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from ladder.cli.kept_server import serve; "
        f"serve({str(path)!r}, {IDLE_S})"
    )
    null = subprocess.DEVNULL
    command = [sys.executable, "-c", program]
    subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True, cwd="/")
    end = time.monotonic() + _STARTS_WITHIN_S
    while time.monotonic() < end:
        if found := _connection(path):
            return found
        time.sleep(0.01)
    return None


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
