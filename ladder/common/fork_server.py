"""The other side of :mod:`ladder.common.isolation`: the server, which forks, and its children.

The server imports what is slow to import and forks a child for each request. It never runs code that is not
trusted. A child calls the functions that it is asked to call and answers in JSON.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ladder import errors
from ladder.common import sandbox
from ladder.errors import LadderError

#: Before each question and each answer: the identity of the question, and the number of bytes that follow.
HEADER = struct.Struct("<16sQ")
#: The most descriptors that a question brings along.
MOST_DESCRIPTORS = 8
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
    """Takes over the parent's surroundings; unless ``folder`` is None, gives up what code that is not trusted
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
