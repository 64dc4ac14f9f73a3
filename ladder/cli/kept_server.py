"""The process that has imported torch, and runs commands for :mod:`ladder.cli.kept` in forked children.

It uses nothing else of the package, and a child imports the package anew: the sources as they are then.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any, NoReturn, cast

#: Before each request and its answer: how many bytes follow.
SIZE_BYTES = 8
STREAMS = 3
#: What is imported beforehand; of packages that have versions.
MODULES = {"torch": "torch", "rich": "rich.progress"}
_LOOK_S = 5.0


def serve(path: str, idle_s: float) -> None:
    """Answers at the socket ``path`` until it is idle for ``idle_s``, or the socket is gone."""
    listening = socket.socket(socket.AF_UNIX)
    beside = f"{path}.{os.getpid()}"
    umask = os.umask(0o077)  # for this user alone
    listening.bind(beside)  # if it can: the imports take seconds
    os.umask(umask)
    inode = os.stat(beside).st_ino
    try:
        for name in MODULES.values():
            importlib.import_module(name)
        gc.freeze()  # so that collections in children leave its pages shared
        listening.listen()
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    listening.settimeout(_LOOK_S)
    asked = time.monotonic()
    while time.monotonic() - asked < idle_s and _inode(path) == inode:
        with suppress(TimeoutError):
            connection, _ = listening.accept()
            asked = time.monotonic()
            if os.fork() == 0:
                listening.close()
                _answer(connection)
            connection.close()
        _reap()
    if _inode(path) == inode:
        os.unlink(path)


def _reap() -> None:
    """Takes note of children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _inode(path: str) -> int:
    with suppress(OSError):
        return os.stat(path).st_ino
    return -1


def _answer(connection: socket.socket) -> NoReturn:
    """Runs the command that is asked for; sends its exit code, or nothing if the command cannot begin. The
    client waits until this process ends.
    """
    try:
        _become_the_client(connection)
        code = _exit_code()
        with suppress(OSError):  # its terminal may be gone
            sys.stdout.flush()
            sys.stderr.flush()
        atexit._run_exitfuncs()  # as multiprocessing's children do
        connection.send(bytes([code]))
    finally:
        os._exit(0)  # to take down torch's modules would copy their memory


def _become_the_client(connection: socket.socket) -> None:
    connection.setblocking(True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    request, streams = _request(connection)
    os.chdir(request["directory"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # as on the terminal, which it now is
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:], sys.argv[:] = request["path"], request["arguments"]
    for name in [one for one in sys.modules if one.partition(".")[0] == "ladder"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    threading.Thread(target=_interrupt_with, args=(connection,), daemon=True).start()


def _exit_code() -> int:
    """Runs the command; its exit code as an interpreter would return it."""
    try:
        from ladder.cli.program import main

        return main(sys.argv[1:])
    except SystemExit as end:  # of argparse, say
        return end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except BaseException:
        traceback.print_exc()
        return 1


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, SIZE_BYTES, STREAMS)
    data = bytearray()
    while len(data) < int.from_bytes(head, "little"):
        part = connection.recv(1 << 16)
        if not part:
            os._exit(1)  # the client has ended
        data += part
    return json.loads(data), streams


def _interrupt_with(connection: socket.socket) -> None:
    """Interrupts this process when the client is interrupted, or ends."""
    if not connection.recv(1):
        os.kill(os.getpid(), signal.SIGINT)
