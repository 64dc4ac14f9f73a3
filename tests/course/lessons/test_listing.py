"""Listings of kernels in lessons."""

from __future__ import annotations

import html
import re

import pytest
from rungs import named

from ladder.course import lessons
from ladder.course.exercises import Workspace, fill_gap, get_exercise
from ladder.course.lessons.listing import LessonError, line_text
from ladder.stages import discover

RESCALE = ("v1", "const float l_old =", "const float l_new = l_old + l_tile;")


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A stage with a known source."""
    folder = tmp_path / "lesson_stage"
    folder.mkdir()
    (folder / "kernel.cu").write_text("int once;\n  for (;;) {\n    twice();\n\n    twice();\n  }\n")
    origin = discover()["v1"].path / "stage.toml"
    (folder / "stage.toml").write_text(origin.read_text())
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    return "lesson_stage"


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Workspace:
    """An empty workspace where lessons look for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_exercises").mkdir()
    return Workspace()


def shown(excerpt) -> str:
    return "".join(html.unescape(re.sub("<[^>]*>", " ", excerpt._repr_html_())).split())


def test_lines_are_read_from_the_source(stage: str) -> None:
    found = lessons.source(stage, "for (;;)", "}")
    assert str(found) == "   2    for (;;) {\n   3      twice();\n   4\n   5      twice();\n   6    }"
    wanted = "lesson_stage/kernel.cu 2 for (;;) { 3 twice(); 4 5 twice(); 6 }"
    assert shown(found) == "".join(wanted.split())
    assert "color: #" in found._repr_html_()
    assert str(lessons.source(stage, "once")) == "   1  int once;"
    assert lessons.line_of(stage, "for") == 2


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda stage: lessons.source(stage, "twice"), r"has 2 lines \(3, 5\) with 'twice'"),
        (lambda stage: lessons.source(stage, "never"), "has 0 lines with 'never'"),
        (lambda stage: lessons.source(stage, "}", "once"), "no line with 'once' after line 6"),
        (lambda stage: lessons.source(stage, "once", file="none.h"), "has no file none.h"),
    ],
)
def test_a_line_that_is_not_there(stage: str, ask, says: str) -> None:
    with pytest.raises(LessonError, match=says):
        ask(stage)


def test_a_gap_is_closed_until_it_is_solved(workspace: Workspace) -> None:
    exercise = get_exercise("v1_rescale")
    number = lessons.line_of(*RESCALE[:2])
    closed = f" ...        // exercise v1_rescale: {exercise.gap.goal}"
    assert str(lessons.source(*RESCALE)).splitlines() == [
        closed,
        f"{number + 1:>4}        const float l_new = l_old + l_tile;",
    ]
    own = discover()["v1"].kernel.read_text().splitlines()[number - 1]
    assert line_text(named("v1"), number, own) == "(exercise v1_rescale)"
    assert line_text(named("v1"), number, "  of(another); // file") == "of(another);"

    workspace.start(exercise)
    fill_gap(exercise, workspace.path(exercise), "const float l_old = mine;  // my way")
    assert str(lessons.source(*RESCALE)).splitlines()[0] == closed
    workspace.keep_try(exercise, solved=True)
    opened = str(lessons.source(*RESCALE))
    assert "const float l_old = mine;  // my way" in opened and "and the rung's:" in opened
    assert f"{number:>4}        const float l_old = l_gmem[row]" in opened
    assert line_text(named("v1"), number, own).startswith("const float l_old = ")


def test_lines_that_are_the_rungs_own_are_shown_once(workspace: Workspace) -> None:
    exercise = get_exercise("v1_rescale")
    workspace.start(exercise)
    own = (discover()["v1"].kernel.read_text().splitlines())[lessons.line_of(*RESCALE[:2]) - 1]
    fill_gap(exercise, workspace.path(exercise), own)
    workspace.keep_try(exercise, solved=True)
    assert str(lessons.source(*RESCALE)).count("const float l_old = ") == 1


def test_a_diff_closes_the_gaps_of_the_later_rung(workspace: Workspace) -> None:
    found = str(lessons.diff("v2", named("v3")))
    assert "// exercise v3_xor: index, swizzled" in found and "return index ^ (" not in found
    assert "-      return smem + (row * kCols + col)" in found or "-    __device__ uint32_t at(" in found
    assert "v2_" not in found  # exercises of the rung before are not part of the diff
    exercise = get_exercise("v3_xor")
    workspace.start(exercise)
    workspace.keep_try(exercise, solved=True)
    assert "return index ^ (" in str(lessons.diff("v2", named("v3")))
