"""The names of rungs that became part of another one: aliases, with one warning each."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import ladder
from ladder import project, stages
from ladder.cli import main
from ladder.course.exercises import Workspace, get_exercise, read_exercise
from ladder.errors import EarlierName
from ladder.stages import FOLD, FOLDED, GONE, discover, new_stage, of_today, renamed

OLD, TODAY = "v5z_folded", "v5_async"


@pytest.fixture(autouse=True)
def folded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory, where :data:`OLD` is an earlier name of :data:`TODAY`."""
    monkeypatch.setitem(FOLDED, OLD, TODAY)
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    renamed._warn.cache_clear()
    yield tmp_path
    renamed._warn.cache_clear()


def test_every_name_leads_to_a_rung_and_is_none() -> None:
    names = {stage.name for stage in discover()}
    own = {name: today for name, today in FOLDED.items() if name != OLD}
    assert set(own.values()) <= names and not set(own) & names
    assert set(own) >= GONE


def test_the_version_that_ends_them_is_not_here_yet() -> None:
    version, until = (
        tuple(map(int, text.split(".")[:2])) for text in (project.version(), renamed.FOLDED_UNTIL)
    )
    assert version < until, "delete the names in FOLDED"


def test_a_rung_is_found_with_one_warning() -> None:
    with pytest.warns(EarlierName, match=f"{OLD} is part of {TODAY} today.*until version") as caught:
        assert discover()[OLD].name == discover()[OLD].name == TODAY
    assert len(caught) == 1


def test_todays_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert discover()[TODAY].name == TODAY


def test_a_rung_of_ones_own_keeps_its_name(folded: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own = new_stage(OLD, "v1_minimal")
        assert discover()[OLD].path == own.path


def test_new_rungs_stand_on_the_rung_of_today(folded: Path) -> None:
    with pytest.warns(EarlierName):
        mine = new_stage("mine", OLD)
    assert mine.before == TODAY


def test_before_of_a_students_rung(folded: Path) -> None:
    mine = new_stage("mine", TODAY)
    toml = mine.path / "stage.toml"
    toml.write_text(toml.read_text().replace(f'"{TODAY}"', f'"{OLD}"'))
    with pytest.warns(EarlierName):
        found = discover()
    assert found["mine"].before == TODAY and not found.broken
    names = [stage.name for stage in found]
    assert names.index("mine") > names.index(TODAY)


def test_functions_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    q = torch.randn(1, 1, 64, 64, dtype=torch.float16)
    with pytest.warns(EarlierName):
        o, _ = ladder.attention(q, q, q, stage=OLD)
    assert torch.equal(o, ladder.attention(q, q, q, stage=TODAY)[0])
    assert main(["compare", OLD, "v4_tk_tiles", TODAY, "--problem", "1,1,64,64,64"]) == 0
    out = capsys.readouterr().out
    assert OLD not in out and out.count(TODAY) == 1


def test_the_command_says_it_once_in_one_line(folded: Path) -> None:
    program = f"""
import sys
from ladder.stages import FOLDED
from ladder.cli import main
FOLDED[{OLD!r}] = {TODAY!r}
sys.exit(main(["new", "mine", "--from", {OLD!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [
        f"warning: {OLD} is part of {TODAY} today, which is used instead; "
        f"{OLD} works until version {renamed.FOLDED_UNTIL}"
    ]


def test_an_exercise_on_an_earlier_rung(folded: Path) -> None:
    origin = stages.exercises_root() / "v5_ahead"
    text = (origin / "exercise.toml").read_text()
    assert f'rung = "{TODAY}"' in text
    folder = folded / "v5_ahead"
    folder.mkdir()
    (folder / "exercise.toml").write_text(text.replace(f'rung = "{TODAY}"', f'rung = "{OLD}"'))
    with pytest.warns(EarlierName):
        exercise = read_exercise(folder)
    assert exercise.rung == TODAY
    assert exercise.sources(solved=True) == read_exercise(origin).sources(solved=True)


def test_an_exercise_that_was_started_earlier(folded: Path) -> None:
    exercise = get_exercise("v5_ahead")
    toml = Workspace().start(exercise) / "stage.toml"
    toml.write_text(toml.read_text().replace(f'"{TODAY}"', f'"{OLD}"'))
    assert Workspace().is_started(exercise) and not Workspace().is_outdated(exercise)
    assert discover()["v5_ahead"].before == OLD


def test_what_was_measured_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FOLDED, "v5y_gone", TODAY)
    monkeypatch.setattr(renamed, "GONE", frozenset({"v5y_gone"}))
    earlier = pd.DataFrame(
        {"stage": [OLD, TODAY, "v5y_gone", "v4_tk_tiles"], "time": [1, 2, 3, 4], "date": "2026-11-27"}
    )
    later = pd.DataFrame({"stage": [TODAY], "time": [5], "date": FOLD})
    found = of_today(pd.concat([earlier, later], ignore_index=True), "stage")
    assert list(zip(found["stage"], found["time"], strict=True)) == [
        (TODAY, 1),
        ("v4_tk_tiles", 4),
        (TODAY, 5),
    ]
