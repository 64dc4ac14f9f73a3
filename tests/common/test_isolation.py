"""Isolation in child processes: whatever ends a child, and whatever it sends, the caller is told."""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import pickle
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import wait_for

from ladder.common import fork_server, isolation, sandbox
from ladder.common.isolation import Child, ProcessEnded, call
from ladder.errors import UnsupportedProblem


def test_a_result_comes_back_from_another_process() -> None:
    assert call(math.sqrt, 4.0) == 2.0
    assert call(os.getpid) != os.getpid() and call(os.getpid) != call(os.getpid)


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_is_no_result(code: int) -> None:
    for leave in (os._exit, sys.exit):
        with pytest.raises(ProcessEnded) as caught:
            call(leave, code)
        assert caught.value.code == (code if leave is os._exit else 1)
    assert call(math.sqrt, 4.0) == 2.0


def test_a_crash_has_its_name() -> None:
    with pytest.raises(ProcessEnded, match=r"SIGSEGV.*host code used an address") as caught:
        call(ctypes.string_at, 0)
    assert caught.value.code == -signal.SIGSEGV
    with pytest.raises(ProcessEnded, match="SIGABRT"):
        call(os.abort)


def take_memory(touched_bytes: int, *descriptors: int) -> str:
    """In memory that is reserved, of the process alone or of the given file."""
    if descriptors:
        reserved = mmap.mmap(descriptors[0], 0)
    else:
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # NORESERVE
        reserved = mmap.mmap(-1, 64 * 2**30, flags=kind)
    for place in range(0, touched_bytes, mmap.PAGESIZE):
        reserved[place] = 1
    time.sleep(0.2)
    return "done"


def test_memory_that_a_child_touches_is_limited() -> None:
    """Memory that is only reserved does not count; memory shared with others does."""
    limit = 2**30
    assert call(take_memory, 2**20, memory_bytes=limit) == "done"
    with pytest.raises(ProcessEnded, match="more than 1 GiB of memory"):
        call(take_memory, 2**30, memory_bytes=limit)
    file = os.memfd_create("shared")
    os.truncate(file, 64 * 2**30)
    with Child(memory_bytes=limit) as child:
        assert child.ask(take_memory, 2**20, descriptors=[file]) == "done"
        with pytest.raises(ProcessEnded, match="more than 1 GiB of memory"):
            child.ask(take_memory, 2**30, descriptors=[file])
    os.close(file)


def test_time_is_limited() -> None:
    with Child() as child:
        assert child.ask(time.sleep, 0.1, seconds=60) is None
        with pytest.raises(ProcessEnded, match="more than 1 seconds"):
            child.ask(time.sleep, 600, seconds=1)
        assert not child.is_alive
        with pytest.raises(ProcessEnded, match="has ended"):
            child.ask(math.sqrt, 4.0)


def print_much() -> None:
    for _ in range(4 * isolation.MOST_OUTPUT_BYTES >> 16):
        os.write(1, bytes(1 << 16))


def test_output_is_limited(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProcessEnded, match="printed more than 16 MiB"):
        call(print_much)
    assert len(capfd.readouterr().err) <= isolation.MOST_OUTPUT_BYTES
    assert call(print, "from the child") is None
    assert capfd.readouterr() == ("", "from the child\n")


def refuse() -> None:
    raise UnsupportedProblem("not this one", "take another")


def test_exceptions_come_back() -> None:
    with pytest.raises(UnsupportedProblem) as caught:
        call(refuse)
    assert caught.value.hint == "take another"
    with pytest.raises(RuntimeError, match="ValueError: math domain error"):
        call(math.sqrt, -1.0)


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def forge(data: bytes, identity: bytes = b"") -> None:
    """Sends something to the parent as native code in the child could, and ends the child."""
    [channel] = filter(is_socket, range(64))
    if identity == b"own":
        frame = sys._getframe()
        while "identity" not in frame.f_locals or frame.f_locals["identity"] == b"own":
            assert frame.f_back
            frame = frame.f_back
        identity = frame.f_locals["identity"]
    header = fork_server.HEADER.pack(identity, len(data)) if identity else b""
    os.write(channel, header + data)
    os._exit(0)


RIGHT = json.dumps(["returned", True]).encode()


@pytest.mark.parametrize(
    "data, identity",
    [
        (b"yes", b""),
        (RIGHT, b""),
        (RIGHT, b"another question"),
        (bytes(2**16), b""),
        (b"{", b"own"),
        (b"[" * 2**16, b"own"),
        (b'["raised", 1, 2, 3]', b"own"),
        (b'{"returned": 1}', b"own"),
        (b"NaN", b"own"),
        (b"\xff", b"own"),
    ],
)
def test_what_a_child_sends_besides_its_answer_is_none(data: bytes, identity: bytes) -> None:
    with pytest.raises(ProcessEnded, match=r"no answer|exit code 0, before there was a result"):
        call(forge, data, identity)
    assert call(math.sqrt, 4.0) == 2.0


def test_a_child_knows_the_identity_of_its_question() -> None:
    """So an answer proves nothing: who asks judges what was computed, and not what the child says of it."""
    assert call(forge, RIGHT, b"own") is True


def test_an_answer_that_is_too_long_is_not_read() -> None:
    with pytest.raises(ProcessEnded, match="no answer"):
        call(forge, b'["returned", "' + b"x" * isolation.MOST_ANSWER_BYTES + b'"]', b"own")


def test_nothing_that_a_child_sends_is_unpickled(tmp_path: Path) -> None:
    data = pickle.dumps(Trap(tmp_path / "sprung"))
    for identity in (b"", b"own"):
        with pytest.raises(ProcessEnded):
            call(forge, data, identity)
    assert not (tmp_path / "sprung").exists()
    pickle.loads(data)
    assert (tmp_path / "sprung").exists()


def test_answers_belong_to_their_questions() -> None:
    """Each child has a channel of its own: two that are asked in turn do not mix."""
    with Child() as one, Child() as other:
        assert [one.ask(math.sqrt, 4.0), other.ask(math.sqrt, 9.0), one.ask(math.sqrt, 16.0)] == [2, 3, 4]


def test_who_wants_no_more_ends_it(tmp_path: Path) -> None:
    """And what it has started, even in a session of its own group."""
    with Child() as child:
        started = child.ask(start_another)
        assert Path(f"/proc/{started}").exists()
    assert wait_for(lambda: not Path(f"/proc/{started}").exists() or is_zombie(started))
    assert call(math.sqrt, 4.0) == 2.0


def start_another() -> int:
    return subprocess.Popen(["sleep", "600"]).pid


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_environment_and_directory_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMETHING", "of now")
    monkeypatch.chdir(tmp_path)
    assert call(os.getenv, "SOMETHING") == "of now" and call(os.getcwd) == str(tmp_path)


def test_a_child_may_have_children() -> None:
    inner, outer = call(pids)
    assert len({inner, outer, os.getpid()}) == 3


def leave_behind() -> int:
    """A process of another session, whose parent has ended."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if child := os.fork():
            os.write(writing, str(child).encode())
            os._exit(0)
        time.sleep(600)
    return int(os.read(reading, 100))


def is_there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_what_a_child_leaves_behind_ends_with_it() -> None:
    with Child() as child:
        pid = child.ask(leave_behind)
        assert is_there(pid)
    assert not is_there(pid)


def take_memory_in_a_fork() -> None:
    child = os.fork()
    if child == 0:
        take_memory(2**30)
        os._exit(0)
    os.waitpid(child, 0)


def test_memory_of_a_child_s_children_is_limited() -> None:
    with pytest.raises(ProcessEnded, match="more than 1 GiB of memory"):
        call(take_memory_in_a_fork, memory_bytes=2**30)


def pids() -> tuple[int, int]:
    return call(os.getpid), os.getpid()


def test_threads_do_not_wait_for_each_other() -> None:
    results: list[float] = []
    threads = [threading.Thread(target=lambda: results.append(call(math.sqrt, 9.0))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3.0, 3.0]


def test_a_program_takes_the_place_of_a_child() -> None:
    with Child(keeps_output=True) as child:
        assert child.become(["/bin/sh", "-c", "echo said; exit 3"], {}) == 3
        assert child.output == b"said\n"
    with Child() as child, pytest.raises(ProcessEnded, match="more than 1 seconds"):
        child.become(["/bin/sleep", "600"], {}, seconds=1)
    with Child(keeps_output=True) as child, pytest.raises(ProcessEnded, match="printed more than"):
        child.become(["/usr/bin/head", "-c", str(4 * isolation.MOST_OUTPUT_BYTES), "/dev/zero"], {})


def error_of(child: Child, function: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(RuntimeError) as caught:
        child.ask(function, *arguments)
    return str(caught.value).splitlines()[-1]


def test_a_confined_child_writes_in_its_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with Child(folder=folder) as child:
        if sandbox.NO_WRITES not in child.protections:
            pytest.skip("this system has no Landlock")
        assert child.ask(write, folder / "file") == 1
        for place in (tmp_path / "file", folder / ".." / "file"):
            assert "PermissionError" in error_of(child, write, place)
        assert "PermissionError" in error_of(child, os.rename, folder / "file", tmp_path / "file")
        assert "File too large" in error_of(child, write, folder / "large", 2**27)
    assert {path.name for path in tmp_path.iterdir()} == {"own"}


def test_a_confined_child_reads_and_executes_only_what_it_needs(tmp_path: Path) -> None:
    own, given = tmp_path / "own", tmp_path / "given"
    for folder in (own, given):
        folder.mkdir()
    for folder in (tmp_path, own, given):
        (folder / "text").write_text("secret")
    system = [path for path in map(Path, ("/usr", "/lib", "/lib64")) if path.is_dir()]
    with Child(preload=["subprocess"], folder=own, readable=[given, *system]) as child:
        if sandbox.NO_READS not in child.protections:
            pytest.skip("this system has no Landlock")
        for folder in (own, given):
            assert child.ask(Path.read_text, folder / "text") == "secret"
        for path in (
            tmp_path / "text",
            given / ".." / "text",
            Path("/proc/self/environ"),
            Path("/etc/passwd"),
        ):
            assert "PermissionError" in error_of(child, Path.read_text, path)
        assert "PermissionError" in error_of(child, os.listdir, tmp_path)
        assert "PermissionError" in error_of(child, Path.write_bytes, given / "text", b"")
        shutil.copy(shutil.which("true") or "", own / "true")
        assert child.ask(subprocess.call, [shutil.which("true")]) == 0
        assert "PermissionError" in error_of(child, subprocess.call, [str(own / "true")])


def write(path: Path, size: int = 1) -> int:
    return path.write_bytes(bytes(size))


def test_a_confined_child_has_no_network(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Child(folder=tmp_path) as child:
        if not {sandbox.NO_NETWORK, sandbox.NO_TCP} & {*child.protections}:
            pytest.skip("this system has neither Landlock for TCP nor namespaces for users")
        assert "Error" in error_of(child, socket.create_connection, server.getsockname())
        if sandbox.NO_NETWORK in child.protections:
            assert "Error" in error_of(child, send, server.getsockname())
    with socket.create_server(("127.0.0.1", 0)) as server, Child() as child:
        child.ask(connect, server.getsockname())
        child.ask(send, server.getsockname())


def send(address: tuple[str, int]) -> None:
    """By UDP, which Landlock knows nothing of."""
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"1", address)


def without_namespaces(folder: Path, address: tuple[str, int]) -> tuple[list[str], bool]:
    """What a child has where a user may not make namespaces, and whether it can connect."""
    sandbox._CLONE_NEWNET = -1
    protections = sandbox.enter(folder)
    try:
        connect(address)
    except OSError:
        return protections, False
    return protections, True


def test_without_namespaces_there_is_no_tcp(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        protections, connected = call(without_namespaces, tmp_path, server.getsockname())
    assert sandbox.NO_NETWORK not in protections
    assert connected == (sandbox.NO_TCP not in protections)
    assert "use the network" in sandbox.missing(protections)[0]


def connect(address: tuple[str, int]) -> None:
    socket.create_connection(address).close()


def test_a_confined_child_does_not_reach_other_processes(tmp_path: Path) -> None:
    with Child(folder=tmp_path) as child:
        if not child.protections:
            pytest.skip("this system has neither Landlock nor namespaces for users")
        assert "PermissionError" in error_of(child, open, f"/proc/{os.getpid()}/mem")
        assert "PermissionError" in error_of(child, os.kill, os.getpid(), 0)
    with Child() as child:
        child.ask(os.kill, os.getpid(), 0)
