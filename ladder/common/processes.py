"""Child processes: none outlives this process, and signals to this process reach them. Each compiler runs in
a session of its own, so that its children can be killed with it. A user's program stays in the terminal's
foreground, where it can read input.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NoReturn

#: How long a program may take to exit after one signal before it gets the next.
_PATIENCE_S = 2.0
#: Launcher that asks the kernel to kill it with its parent, then execs the program. It is a separate program
#: because Python code between fork and exec may deadlock on a lock that another thread held.
_END_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):  # it has ended already
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(sys.argv[2], sys.argv[2:])
"""

_running: set[subprocess.Popen[str]] = set()
_lock = threading.Lock()
#: Set while a :class:`Pool` is left by an exception: :func:`run` then starts no more programs.
_leaving = False


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise SystemExit within the block, so that unfinished work is cleaned up.

    Applies only in the main thread, where Python runs signal handlers, and only to signals that would end the
    process.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    try:
        for number in numbers:
            signal.signal(number, end)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def run(
    command: Sequence[str], directory: Path, scratch: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, without input, and returns its output as text.

    Its temporary files go to ``scratch``, which the caller removes. An exception during the wait kills the
    program and its children. Raises CancelledError in the threads of a :class:`Pool` that is being left.
    """
    with _lock:
        if _leaving:
            raise CancelledError
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, "TMPDIR": str(scratch)} if scratch else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        _running.add(process)
    try:
        out, err = process.communicate()
    except BaseException:
        _kill(process)
        raise
    finally:
        with _lock:
            _running.discard(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Pool(ThreadPoolExecutor):
    """Threads that call :func:`run`. An exception that leaves the ``with`` block kills their programs."""

    def __exit__(self, kind: type[BaseException] | None, *others: Any) -> bool | None:
        global _leaving
        if kind is not None:
            with _lock:
                _leaving = True
                for process in _running:
                    _kill(process)
        try:
            return super().__exit__(kind, *others)
        finally:
            _leaving = False


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _interrupts_handed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Replaces KeyboardInterrupt by forwarding within the block: raised right after waitpid(), it would lose
    the exit code. Ctrl-C reaches the program directly; SIGINT is forwarded after a delay in case it did not.
    """

    def hand_on(number: int, frame: FrameType | None) -> None:
        timer = threading.Timer(_PATIENCE_S, process.send_signal, [signal.SIGINT])
        timer.daemon = True
        timer.start()

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) != signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, hand_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_in_foreground(
    command: Sequence[str], environment: Mapping[str, str], output: BinaryIO | None = None
) -> int:
    """Runs a program with the caller's standard streams and returns its exit code, -N if signal N ended it.

    With ``output``, the program's standard output goes there.

    Ctrl-C and SIGINT are left to the program; any other exception during the wait ends it.
    """
    words = [sys.executable, "-I", "-S", "-c", _END_WITH_PARENT, str(os.getpid()), *command]
    process = subprocess.Popen(words, env=environment, stdout=output)
    try:
        with _interrupts_handed_on(process):
            return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
