"""On a terminal torch is kept for the next check, and a command does there what it does elsewhere."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch  # noqa: F401 - which commands import
from waiting import descendants, wait_for

from ladder.cli import kept, main
from ladder.common import fork_server
from ladder.compile import EmulatorTarget

CHECK = (sys.executable, "-m", "ladder", "exercise", "check", "cuda_map")


class Terminal:
    """Runs commands on a terminal of their own, with an empty cache in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "flash-ladder"

    def environment(self, **variables: str) -> dict[str, str]:
        return {**os.environ, "XDG_CACHE_HOME": str(self.folder), "LADDER_KEEP": "1", **variables}

    def keep(self) -> int:
        """Starts the process that keeps torch, and returns its socket's inode."""
        # With the path that "python -m" has there.
        program = (
            "import os, sys; sys.path[0] = os.getcwd(); from ladder.cli.kept import *; start(socket_path())"
        )
        subprocess.run([sys.executable, "-c", program], cwd=self.folder, env=self.environment(), check=True)
        assert wait_for(lambda: bool(self.sockets))
        return self.inode()

    def start(self, *words: str, **variables: str) -> tuple[subprocess.Popen[bytes], int]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*CHECK, *words],
            cwd=self.folder,
            env=self.environment(**variables),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        return process, ours

    def run(self, *words: str, **variables: str) -> tuple[int, str]:
        return self.end(*self.start(*words, **variables))

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
        (one,) = self.sockets
        return one.stat().st_ino


@pytest.fixture
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path_factory.mktemp("t"))
    yield terminal
    for one in terminal.cache.glob("kept-*"):
        one.unlink()  # which ends the process, even if it does not listen yet


def test_commands_run_where_torch_is_kept(terminal: Terminal) -> None:
    inode = terminal.keep()
    (server,) = (int(one.name) for one in Path("/proc").glob("[0-9]*") if _serves(one, terminal.cache))
    before = _time_of_children(server)
    code, shown = terminal.run()
    assert code == 2 and "cuda_map has not been started" in shown.replace("\r\n", " ")
    code, shown = terminal.run(LADDER_LANGUAGE="zh-CN")
    assert code == 2 and "cuda_map" in shown and "not been" not in shown
    code, shown = terminal.run("--unknown")
    assert code == 2 and shown.count("--unknown") == 1
    assert terminal.inode() == inode
    assert wait_for(lambda: not descendants(server))
    assert _time_of_children(server) > before
    before = _time_of_children(server)
    assert terminal.run(LADDER_KEEP="0")[0] == 2
    piped = subprocess.run(CHECK, cwd=terminal.folder, env=terminal.environment(), capture_output=True)
    assert piped.returncode == 2 and _time_of_children(server) == before


def _serves(process: Path, cache: Path) -> bool:
    try:
        return f"serve_commands('{cache}" in (process / "cmdline").read_text()
    except OSError:  # it has ended
        return False


def _time_of_children(process: int) -> int:
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(words[13]) + int(words[14])


@pytest.mark.parametrize("kept", [True, False])
def test_torch_is_kept_once_a_command_on_a_terminal_has_imported_it(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    monkeypatch.setattr("ladder.cli.program.main", lambda arguments=None: 7)
    monkeypatch.setattr("ladder.cli.kept.start", started.append)
    monkeypatch.setattr("ladder.cli.kept._connection", lambda path: None)
    monkeypatch.setattr("sys.argv", ["ladder", "exercise", "check"])
    monkeypatch.setenv("LADDER_KEEP", "1")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}", SimpleNamespace(isatty=lambda: True))
    if not kept:
        monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert main() == 7 and len(started) == kept


def test_an_interrupt_reaches_the_command(terminal: Terminal) -> None:
    start = (*CHECK[:3], "exercise", "start", "cuda_map")
    subprocess.run(start, cwd=terminal.folder, check=True, capture_output=True)
    compiler = {"LADDER_NVCC": str(EmulatorTarget("sm_80").nvcc().path)}
    terminal.keep()
    process, ours = terminal.start(**compiler)
    assert wait_for(lambda: [*terminal.cache.glob("build/*")])  # it compiles
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    code, shown = terminal.end(process, ours)
    assert code == 130 and "interrupted" in shown and time.monotonic() - begin < 10


def test_no_command_runs_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the child ended without an answer."""

    class Connection(socket.socket):
        def recv(self, *_: int) -> bytes:
            monkeypatch.setattr(Connection, "recv", lambda *_: b"")
            raise KeyboardInterrupt

    ours, theirs = socket.socketpair()
    with theirs:
        assert kept._answer(Connection(fileno=ours.detach())) == 130


def test_a_server_that_cannot_listen_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "KEPT", {"none": "no_such_module"})
    with pytest.raises(FileNotFoundError):
        fork_server.serve_commands(str(tmp_path / "missing" / "socket"), 0.0)
    with pytest.raises(ModuleNotFoundError):
        fork_server.serve_commands(str(tmp_path / "socket"), 0.0)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "name", ["PYTORCH_ALLOC_CONF", "TMPDIR", "NPY_DISABLE_CPU_FEATURES", "CUDA_VISIBLE_DEVICES"]
)
def test_variables_that_are_read_early_have_a_process_of_their_own(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    one = kept.socket_path()
    monkeypatch.setenv(name, "2")
    other = kept.socket_path()
    assert one and other and one != other


@pytest.mark.parametrize(
    "name, value",
    [
        ("sys.path", [*sys.path, "/elsewhere"]),
        ("sys.version", "3.99"),
        ("os.getgid", lambda: 12345),
        ("os.readlink", lambda path: "mnt:[1]"),
        ("ladder.common.fork_server.__file__", __file__),
        ("importlib.metadata.PathDistribution.locate_file", lambda *_: "/"),
    ],
)
def test_another_container_or_installation_has_a_process_of_its_own(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kept.socket_path()
    monkeypatch.setattr(name, value)
    other = kept.socket_path()
    assert one and other and one != other
