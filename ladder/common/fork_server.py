"""Servers that import what is slow to import and fork a child for each request, and their children.

:func:`serve` is the other side of :mod:`ladder.common.isolation`. It never runs code that is not trusted. A
child calls the functions that it is asked to call and answers in JSON.

:func:`serve_commands` is the other side of :mod:`ladder.cli.kept`. It outlives the commands that it runs: a
child becomes one of them, and imports the package anew, the sources as they are then.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast

from ladder import errors
from ladder.common import sandbox
from ladder.errors import LadderError

#: Before each question and each answer: the identity of the question, and the number of bytes that follow.
HEADER = struct.Struct("<16sQ")
#: The most descriptors that a question brings along.
MOST_DESCRIPTORS = 8
#: Before each command: how many bytes follow, with its program, arguments and surroundings.
SIZE = struct.Struct("<Q")
#: What commands import that is slow, of packages that have versions.
KEPT = {"torch": "torch", "rich": "rich.progress"}
_LOOK_S = 5.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def serve(descriptor: int, preload: Sequence[str]) -> None:
    """The server's loop, which ends when its parent closes the connection or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    children: set[int] = set()
    _import(preload)
    control = socket.socket(fileno=descriptor)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            _end_orphans(set())
            return
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            children.discard(request["wait"])
            _end_orphans(children)
            control.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        _import(request["preload"])
        child = os.fork()
        if child == 0:
            control.close()
            _live(*descriptors)
        children.add(child)
        handle = os.pidfd_open(child)
        socket.send_fds(control, [json.dumps(child).encode()], [handle])
        for one in (handle, *descriptors):
            os.close(one)


def _end_orphans(children: Set[int]) -> None:
    """Ends the processes that ended children have left behind: a subreaper inherits them, in whatever session
    they are.
    """
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    while listing.exists() and (orphans := {*map(int, listing.read_text().split())} - children):
        for orphan in orphans:
            with suppress(OSError):
                os.kill(orphan, signal.SIGKILL)
        for orphan in orphans:
            with suppress(OSError):
                os.waitpid(orphan, 0)


def _import(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)


def _live(channel_descriptor: int, output: int) -> NoReturn:
    """Answers questions until the parent closes the channel, then ends without running exit handlers."""
    code = 1
    try:
        os.setsid()  # a group of its own, to be killed together
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        for here, there in ((null, 0), (output, 1), (output, 2)):
            os.dup2(here, there)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != channel_descriptor:
                with suppress(OSError):  # that of the listing
                    os.close(int(name))
        with socket.socket(fileno=channel_descriptor) as channel:
            while _answer(channel):
                pass
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _answer(channel: socket.socket) -> bool:
    """Answers one question; False if there are no more."""
    header, descriptors, _, _ = socket.recv_fds(channel, HEADER.size, MOST_DESCRIPTORS)
    if not header:
        return False
    identity, size = HEADER.unpack(header + _received(channel, HEADER.size - len(header)))
    function, arguments = pickle.loads(_received(channel, size))
    try:
        answer = answer_to(function, (*arguments, *descriptors))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    sys.stdout.flush()
    data = json.dumps(answer).encode()
    channel.sendall(HEADER.pack(identity, len(data)) + data)
    return True


def answer_to(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    """``["returned", result]`` or ``["raised", kind, message, hint]``; the kind is the name of a class in
    :mod:`ladder.errors`, or "" for another exception.
    """
    try:
        return ["returned", function(*arguments)]
    except LadderError as error:
        kind = next(one for one in type(error).__mro__ if getattr(errors, one.__name__, None) is one)
        return ["raised", kind.__name__, error.message, error.hint]
    except Exception as error:
        return ["raised", "", "".join(traceback.format_exception(error)), ""]


def _received(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise EOFError("the question breaks off")
        data += part
    return bytes(data)


def enter(
    environment: Mapping[str, str],
    directory: str | None,
    path: Sequence[str],
    folder: Path | None,
    readable: Sequence[Path] | None,
) -> list[str]:
    """Takes over the client's surroundings; unless ``folder`` is None, gives up what code that is not trusted
    does not need. Returns the protections that are on, see :func:`ladder.common.sandbox.enter`.
    """
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    if directory is not None:
        os.chdir(directory)
    if folder is None:
        return []
    os.environ["TMPDIR"] = str(folder)
    return sandbox.enter(folder, readable)


def become(command: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Replaces the child by a program."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    os.execve(command[0], list(command), environment)


def serve_commands(path: str, idle_s: float) -> None:
    """Runs the commands that come to the socket ``path``, until it is idle for ``idle_s`` or is gone."""
    listening = socket.socket(socket.AF_UNIX)
    beside = f"{path}.{os.getpid()}"
    umask = os.umask(0o077)  # for this user alone
    listening.bind(beside)  # if it can: the imports take seconds
    os.umask(umask)
    inode = os.stat(beside).st_ino
    try:
        _import(KEPT.values())
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
                _run_command(connection)
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


def _run_command(connection: socket.socket) -> NoReturn:
    """Runs the command that is asked for; sends its exit code, or nothing if the command cannot begin. The
    client waits until this process ends.
    """
    try:
        code = _exit_code(_become_the_client(connection))
        with suppress(OSError):  # its terminal may be gone
            sys.stdout.flush()
            sys.stderr.flush()
        atexit._run_exitfuncs()  # as multiprocessing's children do
        connection.send(bytes([code]))
    finally:
        os._exit(0)  # to take down torch's modules would copy their memory


def _become_the_client(connection: socket.socket) -> str:
    """Takes over all that the client has; returns the module with the program that it asks for."""
    connection.setblocking(True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    head, streams, _, _ = socket.recv_fds(connection, SIZE.size, 3)
    program, sys.argv[:], environment, directory, path = json.loads(_received(connection, *SIZE.unpack(head)))
    enter(environment, directory, path, folder=None, readable=None)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    cast(io.TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # as on the terminal, which it now is
    for name in [one for one in sys.modules if one.partition(".")[0] == "ladder"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    threading.Thread(target=_interrupt_with, args=(connection,), daemon=True).start()
    return str(program)


def _exit_code(program: str) -> int:
    """Runs the command; its exit code as an interpreter would return it."""
    try:
        return int(importlib.import_module(program).main(sys.argv[1:]))
    except SystemExit as end:  # of argparse, say
        return end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    except BaseException:
        traceback.print_exc()
        return 1


def _interrupt_with(connection: socket.socket) -> None:
    """Interrupts this process when the client is interrupted, or ends."""
    if not connection.recv(1):
        os.kill(os.getpid(), signal.SIGINT)
