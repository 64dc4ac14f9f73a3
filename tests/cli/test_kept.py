"""On a terminal torch is kept for the next check, and a command does there what it does elsewhere."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_for

from ladder.build import EmulatorTarget

CHECK = (sys.executable, "-m", "ladder", "exercise", "check", "cuda_map")


class Terminal:
    """Runs commands on a terminal of their own, with an empty cache in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "flash-ladder"

    def start(self, **variables: str) -> tuple[subprocess.Popen[bytes], int]:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder), "LADDER_KEEP": "1", **variables}
        process = subprocess.Popen(
            CHECK, cwd=self.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        return process, ours

    def run(self, **variables: str) -> tuple[int, str]:
        return self.end(*self.start(**variables))

    def end(self, process: subprocess.Popen[bytes], terminal: int) -> tuple[int, str]:
        """The exit code and what was printed."""
        shown = bytearray()
        try:
            while part := os.read(terminal, 1 << 16):
                shown += part
        except OSError:  # nobody has it open any more
            pass
        os.close(terminal)
        return process.wait(), shown.decode()

    @property
    def sockets(self) -> list[Path]:
        return [*self.cache.glob("kept-*.socket")]

    def inode(self) -> int:
        (socket,) = self.sockets
        return socket.stat().st_ino


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path_factory.mktemp("t"))
    yield terminal
    for socket in terminal.sockets:
        socket.unlink()  # which ends the process


def test_the_next_command_finds_the_same_process(terminal: Terminal) -> None:
    code, shown = terminal.run()
    assert code == 2 and "cuda_map has not been started" in shown.replace("\r\n", " ")
    first = terminal.inode()
    code, shown = terminal.run(LADDER_LANGUAGE="zh-CN")
    assert code == 2 and "cuda_map" in shown and "not been" not in shown
    assert terminal.inode() == first


def test_nothing_is_kept_elsewhere(terminal: Terminal) -> None:
    assert terminal.run(LADDER_KEEP="0")[0] == 2
    piped = subprocess.run(
        CHECK,
        cwd=terminal.folder,
        env={**os.environ, "XDG_CACHE_HOME": str(terminal.folder)},
        capture_output=True,
    )
    assert piped.returncode == 2 and not terminal.sockets


def test_an_interrupt_reaches_the_command(terminal: Terminal) -> None:
    start = (*CHECK[:3], "exercise", "start", "cuda_map")
    subprocess.run(start, cwd=terminal.folder, check=True, capture_output=True)
    compiler = {"LADDER_NVCC": str(EmulatorTarget("sm_80").nvcc().path)}
    process, ours = terminal.start(**compiler)
    wait_for(lambda: [*terminal.cache.glob("build/*")])  # it compiles
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    code, shown = terminal.end(process, ours)
    assert code == 130 and "interrupted" in shown and time.monotonic() - begin < 10
