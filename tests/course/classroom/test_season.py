"""``ladder class board --season``: solutions of exercises are ranked by counts, as static pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ladder.cli import main
from ladder.course.classroom import SeasonError, read_season, season_pages
from ladder.course.exercises import ExerciseError, Workspace, fill_gap, get_exercise, solution_text

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ann and Cid have the course's solution of one exercise, Ben has begun; Dan has solved another one."""
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    for student, name in (
        ("ann", "cuda_map"),
        ("ben", "cuda_map"),
        ("cid", "cuda_map"),
        ("ann", "cuda_vector_add"),
    ):
        workspace = Workspace(tmp_path / "class" / student, may_be_new=True)
        workspace.start(get_exercise(name))
        if student != "ben":
            exercise = get_exercise(name)
            fill_gap(exercise, workspace.path(exercise), solution_text(exercise))
    season = tmp_path / "season.toml"
    season.write_text(
        'title = "Ours"\n'
        '[[rounds]]\nexercise = "cuda_map"\nby = ["global_sectors_ld", "global_sectors_st"]\n'
        '[[rounds]]\nexercise = "cuda_vector_add"\nby = ["global_sectors_ld"]\n'
    )
    return tmp_path / "class"


def test_right_solutions_are_ranked(folder: Path) -> None:
    assert main(["class", "board", "class", "--season", "season.toml"]) == 0
    pages = {path.name: path.read_text(encoding="utf-8") for path in Path("site").iterdir()}
    assert {*pages} == {"index.html", "cuda_map.html", "cuda_vector_add.html"}
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<td[^>]*>.*?</td>", pages["index.html"])]
    assert cells == [
        *("1", "ann", "2 of 2", "2", "1 (64)", "1 (250)"),
        *("2", "cid", "1 of 2", "1", "1 (64)", "—"),
        *("3", "ben", "0 of 2", "0", "✗", "—"),
    ]
    assert "own solution has 64." in pages["cuda_map.html"] and "wrong output" in pages["cuda_map.html"]
    assert 'href="cuda_map.html"' in pages["index.html"] and 'href="index.html"' in pages["cuda_map.html"]


def test_the_smaller_count_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    season = read_season(Path("season.toml"))
    pages, refused = season_pages(folder, season)
    assert not refused
    of_map = pages["cuda_map.html"]
    assert [(one.rank, one.student, one.count) for one in of_map.places] == [
        *((1, "ann", 64), (1, "cid", 64), (0, "ben", None)),
    ]
    first = season.rounds[0]
    assert first.count({"global_sectors_ld": 3}) == 3
    assert first.count({"global_sectors_ld": None, "global_sectors_st": 1}) is None


def test_the_example_has_six_exercises() -> None:
    season = read_season(ROOT / "classroom" / "season" / "season.toml")
    assert len({one.exercise.name for one in season.rounds}) == 6


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("title = 3", SeasonError, "has no rounds"),
        ("title =", SeasonError, "is not TOML"),
        ('[[rounds]]\nexercise = "cuda_map"', SeasonError, "a round has no counts"),
        ('[[rounds]]\nexercise = "cuda_map"\nby = ["speed"]', SeasonError, "'speed' is no count"),
        ('[[rounds]]\nexercise = "cuda_nap"\nby = ["conflicts"]', ExerciseError, "cuda_nap"),
    ],
)
def test_bad_seasons_are_named(tmp_path, text, error, words) -> None:
    (tmp_path / "season.toml").write_text(text)
    with pytest.raises(error, match=words):
        read_season(tmp_path / "season.toml")
    with pytest.raises(SeasonError, match="cannot be read"):
        read_season(tmp_path / "nothing.toml")
