"""Files named by the user: checked before the work and written atomically."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ladder.common import files
from ladder.errors import LadderError


def test_what_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for name, message in (
        ("", "it is a directory"),
        ("no/x.json", "there is no directory"),
        ("file/x.json", "file is no directory"),
    ):
        with pytest.raises(LadderError, match=f"cannot write .*: .*{message}"):
            files.require_target(tmp_path / name)
    with pytest.raises(LadderError, match="cannot write /proc/x: No such file"):
        files.require_target(Path("/proc/x"))


def test_looking_at_a_target_changes_nothing(tmp_path: Path) -> None:
    files.require_target(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").write_text("as it was")
    files.require_target(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "as it was"


def test_a_pipe_is_written_to_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        files.require_target(pipe)
        files.write(pipe, b"all of it")
        assert reader.communicate()[0] == b"all of it"


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("as it was")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and target.stat().st_mode & 0o777 == 0o640

    def full(path: Path, data: bytes) -> None:
        os.write(os.open(path, os.O_CREAT | os.O_WRONLY), data[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(LadderError, match=r"cannot write .*target: No space left"):
        files.write(target, b"newer")
    assert target.read_bytes() == b"new" and sorted(path.name for path in tmp_path.iterdir()) == [
        "link",
        "target",
    ]


def test_what_is_no_file_to_read(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("x")
    with pytest.raises(LadderError, match="is a directory"):
        files.require_file(tmp_path)
    with pytest.raises(LadderError, match="there is no file"):
        files.require_file(tmp_path / "x.cu")
    with pytest.raises(LadderError, match=r"x.md is no .cu file"):
        files.require_file(tmp_path / "x.md", [".cu", ".cpp"])
    files.require_file(tmp_path / "x.md")


def test_a_home_that_is_not_there() -> None:
    assert files.expanded("~") == Path.home().resolve()
    with pytest.raises(LadderError, match="there is no home directory for ~no-such-user/x"):
        files.expanded("~no-such-user/x")


def test_files_that_vanish_while_they_are_looked_at_do_not_count(tmp_path: Path, monkeypatch) -> None:
    """The cache may be measured while another process builds in it and removes temporary files."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"12345")
    assert files.total_bytes(tmp_path) == 10
    lstat, scandir = Path.lstat, os.scandir

    def remove_first(path: Path) -> os.stat_result:
        if path == tmp_path / "a" / "x":
            path.unlink(missing_ok=True)
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", remove_first)
    assert files.total_bytes(tmp_path) == 5

    def remove_folder(path: str | Path):
        if Path(path) == tmp_path / "a":
            (tmp_path / "a").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove_folder)
    assert list(files.walk(tmp_path)) == [tmp_path / "b" / "x"]
    assert not (tmp_path / "a").exists()
