"""Which builds are evicted from the cache, and which stay."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from ladder.common import cache
from ladder.compile import housekeeping

DAY = 24 * 3600.0


@pytest.fixture(autouse=True)
def few_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(housekeeping, "MOST_BYTES", 1000)


def make(name: str, size: int, days: float):
    path = housekeeping.builds() / name
    path.mkdir(parents=True)
    (path / "program").write_bytes(b"x" * size)
    age(path, days)
    return path


def age(path, days: float) -> None:
    then = time.time() - days * DAY
    os.utime(path, (then, then))


def there() -> set[str]:
    return {path.name for path in housekeeping.builds().iterdir()}


def test_the_least_recently_used_go_until_the_rest_fits():
    for name, size, days in (("a", 400, 9), ("b", 300, 8), ("c", 500, 7), ("d", 600, 3)):
        make(name, size, days)
    assert housekeeping.size() == 1800
    housekeeping.mark_used(housekeeping.builds() / "a")
    housekeeping.tidy()
    assert there() == {"a", "d"}


def test_builds_are_tidied_once_an_hour():
    make("a", 5000, 9)
    housekeeping.tidy_now_and_then()
    assert there() == set()
    make("b", 5000, 9)
    housekeeping.tidy_now_and_then()
    assert there() == {"b"}
    age(cache.root() / "tidied", 2 / 24)
    housekeeping.tidy_now_and_then()
    assert there() == set()


def test_nothing_goes_while_all_fits():
    make("a", 1000, 99)
    housekeeping.tidy()
    assert there() == {"a"}


def test_what_was_used_today_stays_however_large():
    make("a", 5000, 0.9)
    make("b", 5000, 1.1)
    housekeeping.tidy()
    assert there() == {"a"}


def test_locks_lists_and_sockets_of_long_ago_go():
    housekeeping.builds().mkdir(parents=True)
    for name, days in ((".a.lock", 61), ("a.dependencies", 61), (".b.lock", 59), ("b.dependencies", 59)):
        (housekeeping.builds() / name).write_text("")
        age(housekeeping.builds() / name, days)
    sockets = [cache.root() / name for name in ("kept-a.socket", "kept-b.socket.1")]
    for path, days in zip(sockets, (61, 59), strict=True):
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
        age(path, days)
    housekeeping.tidy()
    assert there() == {".b.lock", "b.dependencies"}
    assert [path.exists() for path in sockets] == [False, True]


def test_what_a_killed_process_left_goes_and_what_a_living_one_makes_stays():
    program = (
        "import sys; from ladder.compile import housekeeping; from ladder.common import cache\n"
        "with cache.unfinished(housekeeping.builds() / 'x') as directory:\n"
        "    print(directory, flush=True); sys.stdin.read()"
    )
    makers = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    killed, living = (maker.stdout.readline().decode().strip().rpartition("/")[2] for maker in makers)
    makers[0].send_signal(signal.SIGKILL)
    makers[0].wait()
    housekeeping.tidy()
    assert there() == {killed, living}, "as young as they are, the lock may not be held yet"
    for name in (killed, living):
        age(housekeeping.builds() / name, 0.1)
    (housekeeping.builds() / ".without-owner").mkdir()
    age(housekeeping.builds() / ".without-owner", 1.1)
    housekeeping.tidy()
    assert there() == {living}
    makers[1].communicate()
    assert there() == set()


def test_a_directory_has_no_owner_once_it_is_finished(tmp_path):
    with cache.new_directory(tmp_path / "x") as directory:
        (directory / "file").write_text("")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["file"]
