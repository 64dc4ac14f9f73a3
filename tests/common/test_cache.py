import errno
import threading
import time

import pytest

from ladder.common import cache
from ladder.errors import CacheError


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache.root()


def test_root_follows_xdg(tmp_path, root, monkeypatch):
    assert root == tmp_path / "flash-ladder"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert cache.root() == tmp_path / "here" / "flash-ladder"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(cache.root()) == "/home/somebody/.cache/flash-ladder"


def test_a_directory_appears_complete(root):
    with cache.new_directory(root / "thing") as directory:
        (directory / "file").write_text("x")
        assert not (root / "thing").exists()
    assert (root / "thing" / "file").read_text() == "x"
    assert [path.name for path in root.iterdir()] == ["thing"]


def test_a_failure_leaves_nothing(root):
    with pytest.raises(KeyboardInterrupt), cache.new_directory(root / "thing") as directory:
        (directory / "file").write_text("half")
        raise KeyboardInterrupt
    assert list(root.iterdir()) == []


def test_the_first_of_two_makers_wins(root):
    with cache.new_directory(root / "thing") as slow:
        (slow / "file").write_text("slow")
        with cache.new_directory(root / "thing") as quick:
            (quick / "file").write_text("quick")
    assert (root / "thing" / "file").read_text() == "quick"
    assert [path.name for path in root.iterdir()] == ["thing"]


def test_one_of_several_makes_it_while_the_others_wait(root):
    made = []

    def fill(directory):
        made.append(directory)
        time.sleep(0.05)
        (directory / "file").write_text("x")

    makers = [threading.Thread(target=cache.made_once, args=(root / "thing", fill)) for _ in range(4)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(made) == 1 and (root / "thing" / "file").read_text() == "x"
    assert cache.made_of(root / "other", {"a/b": b"c"}) == root / "other"
    assert (root / "other" / "a" / "b").read_bytes() == b"c"


@pytest.mark.parametrize(
    "number, reason",
    [
        (errno.ENOSPC, "full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission"),
        (errno.EDQUOT, "quota"),
        (errno.EISDIR, "a directory stands"),
    ],
)
def test_a_disk_that_refuses_is_one_clear_error(root, number, reason):
    with (
        pytest.raises(CacheError, match=rf"thing: .*{reason}") as caught,
        cache.new_directory(root / "thing"),
    ):
        raise OSError(number, "")
    assert "XDG_CACHE_HOME" in caught.value.hint
    assert list(root.iterdir()) == []


def test_a_file_in_the_place_of_the_cache(tmp_path, root):
    root.write_text("in the way")
    with pytest.raises(CacheError, match="a file stands"):
        cache.write_text(root / "rows" / "x.json", "{}")


def test_a_cache_whose_directory_cannot_be_made(monkeypatch):
    """Creating a directory in /proc fails with ENOENT for every user."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")
    place = cache.root() / "thing"
    with pytest.raises(CacheError, match="cannot write /proc/flash-ladder/thing: No such file"):
        cache.write_text(place, "")
    with pytest.raises(CacheError, match="No such file"), cache.lock(place):
        pass
    with pytest.raises(CacheError, match="No such file"), cache.new_directory(place):
        pass


def test_without_a_home(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", nobody)
    with pytest.raises(CacheError, match="no home directory"):
        cache.root()


def test_what_the_maker_lacks_is_not_blamed_on_the_cache(root):
    with pytest.raises(FileNotFoundError, match="no-such-compiler"), cache.new_directory(root / "thing"):
        raise FileNotFoundError(errno.ENOENT, "No such file", "no-such-compiler")


def test_write_text_replaces_as_a_whole(root, monkeypatch):
    cache.write_text(root / "x", "old")

    def full(*_):
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(CacheError, match="full"):
        cache.write_text(root / "x", "new")
    assert [path.name for path in root.iterdir()] == ["x"] and (root / "x").read_text() == "old"


def test_lock_admits_one_at_a_time(root):
    inside, most = [], []

    def work():
        with cache.lock(root / "thing"):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.02)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_digest_tells_where_a_part_ends():
    assert cache.digest(["ab", "c"]) != cache.digest(["a", "bc"])
    assert cache.digest(["ab"]) == cache.digest([b"ab"])
