"""Child processes for code that may do anything: a stage's host code, a student's program.

Such code may call exit(), crash, hang, print without end, or try to forge a verdict. Here this affects only
its own process: a child, forked from a server that has already imported what is slow to import.

* A child returns data in a fixed format, JSON of a limited size. Nothing that it sends is unpickled, and the
  parent decides what it means.
* Each child has a channel of its own. Each answer carries the identity of its question, a random number; an
  answer without it is no answer.
* A child's wall-clock time, memory and output are limited. What it prints goes to the parent's stderr.
* With a ``folder``, a child gives up what :mod:`ladder.common.sandbox` takes away, such as the network.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from ladder import errors
from ladder.common import fork_server
from ladder.common.fork_server import HEADER
from ladder.errors import ExecutionError, LadderError

#: A child that sends or prints more is ended.
MOST_ANSWER_BYTES = 16 * 2**20
MOST_OUTPUT_BYTES = 16 * 2**20
#: How often a child's memory is read; in the meantime it may take some 100 MB more.
_MEMORY_INTERVAL_S = 0.05
_PART_BYTES = 1 << 16
#: How long a server may take to end its children.
_PATIENCE_S = 1.0


class ProcessEnded(ExecutionError):
    """The process ended, or was ended, before it returned a result; ``code`` is its exit code, or minus a
    signal.
    """

    def __init__(self, message: str, hint: str = "", code: int = -signal.SIGKILL) -> None:
        super().__init__(message, hint)
        self.code = code


def call(
    function: Callable[..., Any], *arguments: Any, memory_bytes: int = 0, preload: Sequence[str] = ()
) -> Any:
    """Calls ``function(*arguments)``, both pickled, in a child process; returns its result as JSON has it.

    Raises the :class:`LadderError` that ``function`` raises, RuntimeError with the traceback for another
    exception, and :class:`ProcessEnded` if the child ends without an answer or uses more than
    ``memory_bytes``, unless that is 0. ``preload`` names modules to import before the fork.
    """
    with Child(preload=preload, memory_bytes=memory_bytes) as child:
        return child.ask(function, *arguments)


class Child:
    """A child process that answers one question at a time; it ends with the ``with`` block.

    ``preload`` names modules to import before the fork. If the child is to run code that is not trusted,
    ``folder`` is where that may write; None confines the child to nothing. ``readable`` are the only folders
    that it may then read besides that one, and the only ones whose programs it may execute; None is all.
    Memory that is reserved and never touched does not count in ``memory_bytes``; 0 is no limit. With
    ``keeps_output``, what the child prints is kept in ``output`` instead of printed.
    Children of one ``server`` share what it has imported; a name keeps that from all other children.
    """

    def __init__(
        self,
        *,
        preload: Sequence[str] = (),
        folder: Path | None = None,
        readable: Sequence[Path] | None = None,
        memory_bytes: int = 0,
        keeps_output: bool = False,
        server: str = "",
    ) -> None:
        self.memory_bytes = memory_bytes
        self.output = bytearray()
        self._keeps_output = keeps_output
        self._printed_bytes = 0
        self._ended: ProcessEnded | None = None
        self._channel, channel = socket.socketpair()
        self._output, output = os.pipe()
        os.set_blocking(self._output, False)
        try:
            self._server = _Server.of_this_process(preload, server)
            self._pid, self._handle = self._server.fork(preload, (channel.fileno(), output))
        except BaseException:
            self._channel.close()
            os.close(self._output)
            raise
        finally:
            channel.close()
            os.close(output)
        #: What the child has given up, as :func:`ladder.common.sandbox.enter` says.
        self.protections: list[str] = self.ask(
            fork_server.enter, dict(os.environ), _working_directory(), list(sys.path), folder, readable
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        return self._ended is None

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        descriptors: Sequence[int] = (),
        seconds: float | None = None,
    ) -> Any:
        """The result of ``function(*arguments, *descriptors)`` in the child, which gets descriptors of its
        own for the same files.

        Raises like :func:`call`, and :class:`ProcessEnded` also after ``seconds``. Whatever else is raised
        here, such as KeyboardInterrupt, ends the child.
        """
        identity = secrets.token_bytes(16)
        try:
            self._send(identity, (function, arguments), descriptors)
            answer = self._answer(identity, seconds)
        except BaseException:
            self.close()
            raise
        match answer:
            case ["raised", kind, message, hint]:
                raise _error(kind, message, hint)
            case [_, value]:
                return value

    def become(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float | None = None
    ) -> int:
        """Runs a program in the place of the child and returns its exit code, -N if signal N ended it.

        Raises :class:`ProcessEnded` if it exceeds a limit.
        """
        try:
            question = (fork_server.become, (list(command), dict(environment)))
            self._send(secrets.token_bytes(16), question, ())
            self._watch(seconds)
            return self._exit_code()
        finally:
            self.close()

    def _send(self, identity: bytes, question: object, descriptors: Sequence[int]) -> None:
        if self._ended is not None:
            raise self._ended
        data = pickle.dumps(question)
        try:
            socket.send_fds(self._channel, [HEADER.pack(identity, len(data))], descriptors)
            self._channel.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has ended, as _watch will find

    def _answer(self, identity: bytes, seconds: float | None) -> list[Any]:
        """The answer to the question, as :func:`ladder.common.fork_server.answer_to` makes it.

        Raises :class:`ProcessEnded` for anything else that the child does or sends.
        """
        data = self._watch(seconds, HEADER.size)
        if data is None:
            raise _process_ended(self._exit_code())
        echo, size = HEADER.unpack(data)
        body = b""
        if echo == identity and size <= MOST_ANSWER_BYTES:
            body = self._watch(seconds, size) or b""
        with suppress(ValueError, RecursionError):
            match json.loads(body):
                case ["returned", _] | ["raised", str(), str(), str()] as answer:
                    return answer
        raise ProcessEnded("what its process sent is no answer to what it was asked", _NO_ANSWER)

    def _watch(self, seconds: float | None, wanted: int = 0) -> bytes | None:
        """Waits for so many bytes from the child; None if it ends before, as with 0 it must.

        Prints or keeps what it prints meanwhile. Raises :class:`ProcessEnded` if it exceeds a limit.
        """
        end = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        for descriptor in (self._handle, self._output, *([self._channel.fileno()] if wanted else [])):
            poll.register(descriptor, select.POLLIN)
        data = bytearray()
        while wanted == 0 or len(data) < wanted:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise ProcessEnded(f"it ran for more than {seconds:.0f} seconds", _TOO_LONG)
            if self.memory_bytes:
                left = _MEMORY_INTERVAL_S if left is None else min(left, _MEMORY_INTERVAL_S)
                if _used_bytes(self._pid) > self.memory_bytes:
                    raise ProcessEnded(f"it used more than {self.memory_bytes / 2**30:.3g} GiB of memory")
            ready = {descriptor for descriptor, _ in poll.poll(None if left is None else 1000 * left)}
            if self._output in ready and self._take_output() == b"":
                poll.unregister(self._output)
            if self._channel.fileno() in ready:
                part = self._received(min(wanted - len(data), _PART_BYTES))
                data += part
                if not part:
                    poll.unregister(self._channel)
            elif self._handle in ready:  # and everything that it sent has been read
                return None
        return bytes(data)

    def _received(self, size: int) -> bytes:
        try:
            return self._channel.recv(size)
        except ConnectionResetError:
            return b""

    def _take_output(self) -> bytes | None:
        """Takes a part of what the child has printed: None if there is nothing now, b"" if there will be
        nothing more.

        Raises :class:`ProcessEnded` if it printed too much.
        """
        try:
            part = os.read(self._output, _PART_BYTES)
        except BlockingIOError:
            return None
        self._printed_bytes += len(part)
        if self._printed_bytes > MOST_OUTPUT_BYTES:
            raise ProcessEnded(
                f"it printed more than {MOST_OUTPUT_BYTES >> 20} MiB",
                "A printf in a loop? Print for one thread, or for the first elements.",
            )
        if self._keeps_output:
            self.output += part
        else:
            sys.stderr.flush()
            with suppress(OSError):
                os.write(2, part)
        return part

    def _exit_code(self) -> int:
        """How the child, which has ended, ended; also ends the processes that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        code = self._server.wait(self._pid)
        self._ended = ProcessEnded("its process has ended", code=code)
        while self._take_output():
            pass
        return code

    def close(self) -> None:
        """Ends the child and the processes that it has started."""
        if self._channel.fileno() == -1:
            return
        if self._ended is None:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            with suppress(ProcessEnded):
                self._exit_code()
        self._channel.close()
        os.close(self._output)
        os.close(self._handle)


_NO_ANSWER = "A stage's host code does nothing but check the problem and launch kernels."
_TOO_LONG = "A loop in its host code may not end, or launch too much."


class _Server:
    """A process that forks this process's children; it is started with the first one."""

    _instances: ClassVar[dict[str, _Server]] = {}
    _starting = threading.Lock()

    def __init__(self, preload: Sequence[str]) -> None:
        self._owner = os.getpid()
        self._asking = threading.Lock()
        # Sockets that keep the boundaries of messages.
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from ladder.common.fork_server import serve; "
            f"serve({control.fileno()}, {list(preload)!r})"
        )
        with control:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=2,
                stderr=2,  # named, since a stream that was opened later would be closed
                pass_fds=[control.fileno()],
            )
        atexit.register(self._end)

    @classmethod
    def of_this_process(cls, preload: Sequence[str], name: str = "") -> _Server:
        with cls._starting:
            server = cls._instances.get(name)
            if server is None or server._owner != os.getpid() or server._process.poll() is not None:
                server = cls._instances[name] = cls(preload)
            return server

    def fork(self, preload: Sequence[str], descriptors: Sequence[int]) -> tuple[int, int]:
        """Forks a child with these descriptors; returns its number, and a descriptor of it."""
        pid, handles = self._request({"preload": list(preload)}, descriptors)
        return pid, handles[0]

    def wait(self, pid: int) -> int:
        """The exit code of a child, once it has ended, or minus the signal that ended it."""
        return self._request({"wait": pid})[0]

    def _request(self, what: object, descriptors: Sequence[int] = ()) -> tuple[int, list[int]]:
        with self._asking:
            try:
                socket.send_fds(self._control, [json.dumps(what).encode()], descriptors)
                answer, handles, _, _ = socket.recv_fds(self._control, _PART_BYTES, 1)
                return int(json.loads(answer)), handles
            except (OSError, ValueError) as error:
                self._end()
                raise LadderError("the process that starts others is gone") from error
            except BaseException:  # an interrupt: the answer may still come, and is nobody's
                self._end()
                raise

    def _end(self) -> None:
        if self._owner == os.getpid():
            self._control.close()  # it then ends what its children have left behind, and itself
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            self._process.kill()
            self._process.wait()


def warm_up(preload: Sequence[str]) -> None:
    """Starts the server, if there is none, without waiting for it."""
    _Server.of_this_process(preload)


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the working directory has been deleted
        return None


def _used_bytes(process: int) -> int:
    """The memory of a process and its children, without files' pages, which the system can take back."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = [
            int(child)
            for listing in Path(f"/proc/{process}/task").glob("*/children")
            for child in listing.read_text().split()
        ]
    except OSError:  # it has ended
        return 0
    own = 1024 * sum(map(int, re.findall(r"^Rss(?:Anon|Shmem):\s*(\d+) kB", status, re.MULTILINE)))
    return own + sum(map(_used_bytes, children))


def _error(kind: str, message: str, hint: str) -> Exception:
    """The exception that a child raised."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, LadderError):
        return found(message, hint)
    return RuntimeError(message)


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
        signal.SIGXFSZ: "it wrote too large a file",
    }
    reason = reasons.get(signal.Signals(-code)) if name in signal.Signals.__members__ else None
    return ProcessEnded(
        f"its host code ended the process by {name}" + (f": {reason}" if reason else ""), code=code
    )
