"""``ladder new``: makes a copy of a rung to work on."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rungs import named

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


@pytest.mark.parametrize("origin", [named("v1"), named("v4"), named("b2")])
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
    new_stage("mine", named("v1"))
    problem = Problem(1, 1, 33, 40, 32)
    rows = [evaluate(name, problem, backend="emulator").row for name in (named("v1"), "mine")]
    assert rows[1].pop("stage") == "mine"
    assert {**rows[0], "stage": None} == {**rows[1], "stage": None}


def test_it_is_found_from_below_and_not_from_elsewhere(home: Path, tmp_path_factory, monkeypatch) -> None:
    below = home / "a" / "b"
    below.mkdir(parents=True)
    new_stage("mine", named("v1"))
    monkeypatch.chdir(below)
    assert stages.discover()["mine"].path == home / "my_rungs" / "mine"
    assert new_stage("second", "mine").path == home / "my_rungs" / "second"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(StageError, match="no stage 'mine'"):
        stages.discover()["mine"]


def test_a_folder_named_twice_is_read_once(home: Path, monkeypatch) -> None:
    new_stage("mine", named("v1"))
    monkeypatch.setenv("LADDER_STAGES", str(home / "my_rungs"))
    ladder = stages.discover()
    assert ladder["mine"].title == f"mine, from {named('v1')}" and not ladder.broken


def test_elsewhere_the_command_says_how_it_is_found(home: Path, capsys) -> None:
    assert main(["new", "mine", "--from", "v2", "--folder", "other place"]) == 0
    assert f"export LADDER_STAGES='{home / 'other place'}'" in capsys.readouterr().out
    assert main(["new", "also_mine", "--from", "v2"]) == 0
    assert "LADDER_STAGES" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "origin", "message"),
    [
        ("2nd", named("v1"), "'2nd' cannot be the name"),
        ("my-rung", named("v1"), "cannot be the name"),
        ("../mine", named("v1"), "cannot be the name"),
        ("été", named("v1"), "cannot be the name"),
        ("include", named("v1"), "cannot be the name"),
        ("m" * 61, named("v1"), "more than 60 characters"),
        (named("v2"), named("v1"), f"there is a stage {named('v2')} already"),
        ("v1_lse", named("v1"), "v1_lse is an exercise"),
        ("mine", "v2_warp_nma", f"did you mean {named('v2')}"),
    ],
)
def test_what_is_refused(home: Path, name: str, origin: str, message: str) -> None:
    with pytest.raises(StageError, match=message):
        new_stage(name, origin)
    assert list(home.iterdir()) == []


def test_what_is_there_stays(home: Path) -> None:
    kernel = new_stage("mine", named("v1")).kernel
    kernel.write_text("// my work")
    with pytest.raises(StageError, match="a stage mine already"):
        new_stage("mine", named("v2"))
    (home / "my_rungs" / "empty").mkdir()
    with pytest.raises(StageError, match="empty is there already"):
        new_stage("empty", named("v2"))
    assert kernel.read_text() == "// my work"


def test_a_folder_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(LadderError, match="file"):
        new_stage("mine", named("v1"), home / "file")


def test_rungs_of_somebody_else_are_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_stage("mine", named("v1"))
    monkeypatch.setattr("os.getuid", lambda: home.stat().st_uid + 1)
    ladder = stages.discover()
    assert "mine" not in [stage.name for stage in ladder]
    [error] = [error for name, error in ladder.broken.items() if name == str(home / "my_rungs")]
    assert "belongs to somebody else" in error.message


def test_one_rung_of_somebody_else_is_not_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "theirs"):
        new_stage(name, named("v1"))
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
        new_stage(name, named("v1"))
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
