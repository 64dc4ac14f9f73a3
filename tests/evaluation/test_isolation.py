"""Isolation in child processes: whatever ends a child, the caller goes on and is told."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ladder.errors import UnsupportedProblem
from ladder.evaluation.isolation import MemoryExceeded, ProcessEnded, call, iterate


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


def take_memory(touched_bytes: int) -> str:
    reserved = mmap.mmap(-1, 64 * 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # NORESERVE
    for place in range(0, touched_bytes, mmap.PAGESIZE):
        reserved[place] = 1
    time.sleep(0.2)
    return "done"


def test_memory_that_a_child_touches_is_limited() -> None:
    """Memory that is only reserved does not count."""
    limit = 2**30
    assert call(take_memory, 2**20, memory_bytes=limit) == "done"
    with pytest.raises(MemoryExceeded, match="more than 1 GiB of memory"):
        call(take_memory, 2**30, memory_bytes=limit)
    assert call(take_memory, 2**20, memory_bytes=limit) == "done"


def refuse() -> None:
    raise UnsupportedProblem("not this one", "take another")


def items_and_an_end() -> Iterator[int]:
    yield 1
    yield 2
    os._exit(0)


class Unpicklable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("something else")


def raise_unpicklable() -> None:
    raise Unpicklable(1, 2)


def test_exceptions_come_back() -> None:
    with pytest.raises(UnsupportedProblem) as caught:
        call(refuse)
    assert caught.value.hint == "take another"
    with pytest.raises(ValueError, match="math domain error"):
        call(math.sqrt, -1.0)
    with pytest.raises(RuntimeError, match="Unpicklable: something else"):
        call(raise_unpicklable)


def test_items_before_the_end_count() -> None:
    found = []
    with pytest.raises(ProcessEnded):
        for item in iterate(items_and_an_end):
            found.append(item)
    assert found == [1, 2]


def test_who_wants_no_more_ends_it(tmp_path: Path) -> None:
    items = iterate(endless, tmp_path / "pid")
    assert next(items) == 0
    child = int((tmp_path / "pid").read_text())
    items.close()  # type: ignore[attr-defined]
    for _ in range(200):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child lives on")
    assert call(math.sqrt, 4.0) == 2.0


def count() -> Iterator[int]:
    yield from range(1000, 2000)


def test_an_answer_belongs_to_its_question() -> None:
    """Even where the consumer of an earlier one stopped early and its iterator is still there."""
    kept = iterate(count)
    assert [next(kept), next(kept)] == [1000, 1001]
    assert call(math.sqrt, 4.0) == 2.0
    with pytest.raises(RuntimeError, match="given up for a later one"):
        next(kept)
    assert call(math.sqrt, 9.0) == 3.0


def endless(path: Path) -> Iterator[int]:
    path.write_text(str(os.getpid()))
    yield 0
    time.sleep(600)


def test_environment_and_directory_are_those_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMETHING", "of now")
    monkeypatch.chdir(tmp_path)
    assert call(os.getenv, "SOMETHING") == "of now" and call(os.getcwd) == str(tmp_path)


def test_a_call_within_a_call_stays_in_its_process() -> None:
    inner, outer = call(pids)
    assert inner == outer != os.getpid()


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
