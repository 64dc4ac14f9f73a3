"""``ladder new``: makes a copy of a rung to work on."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ladder import stages
from ladder.cli import main
from ladder.errors import LadderError, StageError
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.stages import new_stage, places


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A working directory of one's own."""
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("origin", ["v1_minimal", "v4_tk_tiles", "b2_one_pass"])
def test_the_copy_is_a_rung_on_top_of_its_origin(home: Path, origin: str) -> None:
    mine, source = new_stage("mine", origin), stages.discover()[origin]
    assert mine.path == home / "my_rungs" / "mine"
    names = [stage.name for stage in stages.discover()]
    assert names.index("mine") > names.index(origin) and mine.before == origin
    assert (mine.dtypes, mine.head_dims, mine.options) == (source.dtypes, source.head_dims, source.options)
    assert mine.min_compute_capability == source.min_compute_capability
    assert mine.deterministic == source.deterministic
    assert origin not in mine.kernel.read_text() and "mine: launch" in mine.kernel.read_text()
    for path in source.path.rglob("*.h"):
        assert filecmp.cmp(path, mine.path / path.relative_to(source.path), shallow=False)
    assert not list(mine.path.rglob("*.py")) and not list(mine.path.rglob("README.md"))


def test_it_counts_what_its_origin_counts(home: Path) -> None:
    new_stage("mine", "v1_minimal")
    problem = Problem(1, 1, 33, 40, 32)
    rows = [evaluate(name, problem, backend="emulator").row for name in ("v1_minimal", "mine")]
    assert rows[1].pop("stage") == "mine"
    assert {**rows[0], "stage": None} == {**rows[1], "stage": None}


def test_it_is_found_from_below_and_not_from_elsewhere(home: Path, tmp_path_factory, monkeypatch) -> None:
    below = home / "a" / "b"
    below.mkdir(parents=True)
    new_stage("mine", "v1_minimal")
    monkeypatch.chdir(below)
    assert stages.discover()["mine"].path == home / "my_rungs" / "mine"
    assert new_stage("second", "mine").path == home / "my_rungs" / "second"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(StageError, match="no stage 'mine'"):
        stages.discover()["mine"]


def test_a_folder_named_twice_is_read_once(home: Path, monkeypatch) -> None:
    new_stage("mine", "v1_minimal")
    monkeypatch.setenv("LADDER_STAGES", str(home / "my_rungs"))
    ladder = stages.discover()
    assert ladder["mine"].title == "mine, from v1_minimal" and not ladder.broken


def test_elsewhere_the_command_says_how_it_is_found(home: Path, capsys) -> None:
    assert main(["new", "mine", "--from", "v2_warp_mma", "--folder", "other place"]) == 0
    assert f"export LADDER_STAGES='{home / 'other place'}'" in capsys.readouterr().out
    assert main(["new", "also_mine", "--from", "v2_warp_mma"]) == 0
    assert "LADDER_STAGES" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "origin", "message"),
    [
        ("2nd", "v1_minimal", "'2nd' cannot be the name"),
        ("my-rung", "v1_minimal", "cannot be the name"),
        ("../mine", "v1_minimal", "cannot be the name"),
        ("été", "v1_minimal", "cannot be the name"),
        ("include", "v1_minimal", "cannot be the name"),
        ("m" * 61, "v1_minimal", "more than 60 characters"),
        ("v2_warp_mma", "v1_minimal", "there is a stage v2_warp_mma already"),
        ("v1_lse", "v1_minimal", "v1_lse is an exercise"),
        ("mine", "v2_warp_nma", "did you mean v2_warp_mma"),
    ],
)
def test_what_is_refused(home: Path, name: str, origin: str, message: str) -> None:
    with pytest.raises(StageError, match=message):
        new_stage(name, origin)
    assert list(home.iterdir()) == []


def test_what_is_there_stays(home: Path) -> None:
    kernel = new_stage("mine", "v1_minimal").kernel
    kernel.write_text("// my work")
    with pytest.raises(StageError, match="a stage mine already"):
        new_stage("mine", "v2_warp_mma")
    (home / "my_rungs" / "empty").mkdir()
    with pytest.raises(StageError, match="empty is there already"):
        new_stage("empty", "v2_warp_mma")
    assert kernel.read_text() == "// my work"


def test_a_folder_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(LadderError, match="file"):
        new_stage("mine", "v1_minimal", home / "file")


def test_rungs_of_somebody_else_are_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_stage("mine", "v1_minimal")
    monkeypatch.setattr("os.getuid", lambda: home.stat().st_uid + 1)
    ladder = stages.discover()
    assert "mine" not in [stage.name for stage in ladder]
    [error] = [error for name, error in ladder.broken.items() if name == str(home / "my_rungs")]
    assert "belongs to somebody else" in error.message


def test_one_rung_of_somebody_else_is_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "theirs"):
        new_stage(name, "v1_minimal")
    mine = places.is_users
    monkeypatch.setattr(places, "is_users", lambda folder: folder.name != "theirs" and mine(folder))
    ladder = stages.discover()
    assert "mine" in [stage.name for stage in ladder]
    assert "belongs to somebody else" in ladder.broken["theirs"].message


@pytest.mark.parametrize("hidden", ["theirs", "stage.toml", "kernel.cu"])
def test_a_rung_that_cannot_be_read_fails_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    for name in ("mine", "theirs"):
        new_stage(name, "v1_minimal")
    path = home / "my_rungs" / "theirs" / ("" if hidden == "theirs" else hidden)
    access, iterdir = os.access, Path.iterdir

    def entries(folder: Path) -> Iterator[Path]:
        if folder == path:
            raise PermissionError(13, "Permission denied")
        return iterdir(folder)

    monkeypatch.setattr(os, "access", lambda file, mode: file != path and access(file, mode))
    monkeypatch.setattr(Path, "iterdir", entries)
    ladder = stages.discover()
    assert "mine" in [stage.name for stage in ladder]
    assert "cannot be read: permission denied" in ladder.broken["theirs"].message
