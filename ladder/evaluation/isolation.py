"""Calls in a child process, for code that may end its process: a stage's host code.

A stage's ``launch`` may call exit(), crash, or write anywhere. Here this affects only its own call: each call
runs in a child process, forked from a server that has already imported torch, and counts only if it returns a
result. Everything that it prints goes to stderr. A nested call stays in the same child.

Every answer carries the number of its question. A thread's server works on one question at a time: a new one
ends what is left of the last, even if its consumer stopped early and still holds the iterator.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import mmap
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ladder.errors import ExecutionError, LadderError

T = TypeVar("T")

#: Modules that every call needs and that are slow to import.
_PRELOADED = ("torch", "ladder.evaluation.comparison")
_PR_SET_PDEATHSIG = 1
_HEADER = struct.Struct("<cQQ")  # kind, number of the question, number of bytes that follow
_LIMIT = struct.Struct("<Q")  # of a call's memory, in bytes; 0: none
_ITEM, _RAISED, _RETURNED, _ENDED, _TOO_LARGE = b"i", b"x", b"r", b"e", b"m"
#: How often a child's memory is read; in the meantime it may take some 100 MB more.
_MEMORY_INTERVAL_MS = 50


class ProcessEnded(ExecutionError):
    """The process ended before it returned a result; ``code`` is its exit code, or minus a signal."""

    def __init__(self, message: str, hint: str = "", code: int = 0) -> None:
        super().__init__(message, hint)
        self.code = code


class MemoryExceeded(ProcessEnded):
    """The process took more memory than it was allowed to."""


def call(function: Callable[..., T], *arguments: Any, memory_bytes: int = 0) -> T:
    """Calls ``function(*arguments)`` in a child process. Both are pickled.

    Raises whatever ``function`` raises, :class:`ProcessEnded` if the child ends without an answer, and
    :class:`MemoryExceeded` if it uses more than ``memory_bytes``, unless that is 0. Memory that is reserved
    and never touched does not count, as it would in the system's own limits. A child calls the
    function itself, under its own limit.
    """
    results = list(iterate(_one_item, function, *arguments, memory_bytes=memory_bytes))
    result: T = results[0]
    return result


def _one_item(function: Callable[..., T], *arguments: Any) -> Iterator[T]:
    yield function(*arguments)


def iterate(function: Callable[..., Iterator[T]], *arguments: Any, memory_bytes: int = 0) -> Iterator[T]:
    """Yields, one by one, the items that the generator ``function(*arguments)`` yields in a child process.

    Raises like :func:`call`, after the items that arrived.
    """
    if _is_child:
        yield from function(*arguments)
        return
    server = _Server.of_this_thread()
    call = (function, arguments, dict(os.environ), _working_directory(), list(sys.path))
    question = server.ask(call, memory_bytes)
    try:
        while True:
            kind, data = server.answer(question)
            if kind == _ITEM:
                yield pickle.loads(data)
                continue
            if kind not in (_ENDED, _TOO_LARGE):
                server.answer(question)  # how it ended no longer matters
            server.unanswered = None
            if kind == _RAISED:
                raise pickle.loads(data)
            if kind == _TOO_LARGE:
                raise MemoryExceeded(f"it used more than {memory_bytes / 2**30:.3g} GiB of memory")
            if kind == _ENDED:
                raise _process_ended(struct.unpack("<i", data)[0])
            return
    finally:
        if server.unanswered == question:  # interrupted, or the consumer stopped early
            server.kill()


def _process_ended(code: int) -> ProcessEnded:
    if code >= 0:
        return ProcessEnded(
            f"its host code ended the process with exit code {code}, before there was a result",
            "A stage's launch() returns, or throws what went wrong.",
            code,
        )
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    reasons = {
        signal.SIGSEGV: "host code used an address that is not its own; device pointers are not the host's",
        signal.SIGABRT: "abort(), a failed assertion or an exception that nobody caught",
        signal.SIGKILL: "the system may have run out of memory",
    }
    reason = reasons.get(signal.Signals(-code)) if name in signal.Signals.__members__ else None
    return ProcessEnded(
        f"its host code ended the process by {name}" + (f": {reason}" if reason else ""), code=code
    )


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the working directory has been deleted
        return None


_is_child = False
_threads = threading.local()


class _Server:
    """The process that forks a thread's children; it is started with the first one.

    ``unanswered`` is the number of the question that it still works on.
    """

    def __init__(self) -> None:
        self.unanswered: int | None = None
        self._asked = 0
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from ladder.evaluation.isolation import serve; serve({requests}, {answers})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(requests, answers),
        )
        os.close(requests)
        os.close(answers)
        self._reader: BinaryIO = open(self._answers, "rb")  # noqa: SIM115 - open as long as the process

    @classmethod
    def of_this_thread(cls) -> _Server:
        """The thread's server, idle."""
        server: _Server | None = getattr(_threads, "server", None)
        if server is not None and server.unanswered is not None:
            server.kill()
        if server is None or server._process.poll() is not None:
            server = _threads.server = cls()
            atexit.register(server.kill)
        return server

    def ask(self, call: object, memory_bytes: int) -> int:
        """Sends a question and returns its number."""
        data = _LIMIT.pack(memory_bytes) + pickle.dumps(call)
        self._asked += 1
        self.unanswered = self._asked
        _write(self._requests, _HEADER.pack(b"q", self._asked, len(data)) + data)
        return self._asked

    def answer(self, question: int) -> tuple[bytes, bytes]:
        """The next part of the answer to the question; raises :class:`ProcessEnded` if the server died, and
        RuntimeError if the thread has asked another question since.
        """
        if self.unanswered != question:
            raise RuntimeError(f"question {question} was given up for a later one")
        frame = _read(self._reader)
        if frame is None:
            raise ProcessEnded("the process that runs stages is gone")
        kind, number, data = frame
        if number != question:
            raise RuntimeError(f"an answer to question {number} came where one to {question} was due")
        return kind, data

    def kill(self) -> None:
        """Kills the server and the running child."""
        self.unanswered = None
        if self._reader.closed:
            return
        self._process.kill()
        self._process.wait()
        self._reader.close()
        os.close(self._requests)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read(reader: BinaryIO) -> tuple[bytes, int, bytes] | None:
    """Reads the next frame: its kind, the number of the question, its data. None at the end, or if the writer
    died within a frame.
    """
    header = reader.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    kind, number, size = _HEADER.unpack(header)
    data = reader.read(size)
    return (kind, number, data) if len(data) == size else None


def serve(requests: int, answers: int) -> None:
    """The server's loop, which ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    for name in _PRELOADED:
        importlib.import_module(name)
    reader = open(requests, "rb")  # noqa: SIM115 - open as long as the process
    while (frame := _read(reader)) is not None:
        _, question, data = frame
        child = os.fork()
        if child == 0:
            reader.close()
            _run(data[_LIMIT.size :], answers, question)
        kind, code = _wait(child, requests, *_LIMIT.unpack_from(data))
        _write(answers, _HEADER.pack(kind, question, 4) + struct.pack("<i", code))


def _wait(child: int, requests: int, memory_bytes: int) -> tuple[bytes, int]:
    """Returns whether the child ended or was too large, and its exit code, or minus the signal; kills it if
    it is too large or the parent ends meanwhile.
    """
    descriptor = os.pidfd_open(child)
    kind = _ENDED
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(requests, select.POLLHUP)
        while not (events := poll.poll(_MEMORY_INTERVAL_MS if memory_bytes else None)):
            if _used_bytes(child) > memory_bytes:
                kind = _TOO_LARGE
                break
        if all(fd != descriptor for fd, _ in events):
            os.kill(child, signal.SIGKILL)
        return kind, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(descriptor)


def _used_bytes(process: int) -> int:
    """The memory that a process has, without files' pages, which the system can take back."""
    _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def _run(request: bytes, answers: int, question: int) -> None:
    """Carries out one request in the child, then ends the process without running exit handlers."""

    def send(kind: bytes, data: bytes = b"") -> None:
        _write(answers, _HEADER.pack(kind, question, len(data)) + data)

    global _is_child
    _is_child = True
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        function, arguments, environment, directory, path = pickle.loads(request)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        if directory is not None:
            os.chdir(directory)
        try:
            for item in function(*arguments):
                send(_ITEM, pickle.dumps(item))
            send(_RETURNED)
        except Exception as error:
            send(_RAISED, _pickled(error))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _pickled(error: Exception) -> bytes:
    """Pickles the error, or a plain one with the same text if it does not survive pickling."""
    with suppress(Exception):
        data = pickle.dumps(error)
        if str(pickle.loads(data)) == str(error):
            return data
    if isinstance(error, LadderError):
        return pickle.dumps(ExecutionError(error.message, error.hint))
    return pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))
