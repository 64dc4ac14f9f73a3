"""Every exercise: its skeleton is found wrong, in the way it is wrong, and its solution right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ladder.exercises import BEGIN, END, Exercise, exercises, source_changes, write_working_copy
from ladder.exercises.judge import judge
from ladder.stages import Stage, discover, read_stage

EXERCISES = exercises()


@pytest.fixture(params=EXERCISES, ids=lambda one: one.name)
def exercise(request: pytest.FixtureRequest) -> Exercise:
    found: Exercise = request.param
    return found


def working_copy(exercise: Exercise, folder: Path, *, solved: bool) -> Stage:
    path = folder / exercise.name
    path.mkdir(parents=True)
    write_working_copy(exercise, path, solved=solved)
    return read_stage(path)


def without_markers(text: str) -> str:
    kept = [line for line in text.splitlines() if not line.strip().startswith((BEGIN, END))]
    return "\n".join(kept) + "\n"


def test_there_are_four_a_rung() -> None:
    """Of those below the rungs for sm_90a."""
    rungs = [stage.name for stage in discover().computing("attention") if not stage.only_arch]
    for rung in rungs:
        assert sum(exercise.rung == rung for exercise in EXERCISES) >= 4, rung


def test_skeleton_is_wrong(exercise: Exercise, tmp_path: Path) -> None:
    verdict = judge(exercise, working_copy(exercise, tmp_path, solved=False))
    # It compiles, since a student should not begin by mending it.
    kinds = [one.kind for one in verdict.findings]
    assert kinds and set(kinds) <= {"output", "fault", "counts", "sanitizer"}, verdict.findings


def test_solution_is_right(exercise: Exercise, tmp_path: Path) -> None:
    """Where the rung itself is the solution, its build serves: it is the same source."""
    if exercise.solved_by_rung:
        stage = exercise.stage()
        for file, text in exercise.sources(solved=True).items():
            rung_text = stage.source(file).read_text().replace(stage.name, exercise.name)
            assert without_markers(text) == rung_text
    else:
        stage = working_copy(exercise, tmp_path, solved=True)
    verdict = judge(exercise, stage)
    assert verdict.passed, verdict.findings


def test_solution_changes_the_marked_lines_alone(exercise: Exercise, tmp_path: Path) -> None:
    stage = working_copy(exercise, tmp_path, solved=True)
    assert source_changes(exercise, stage.path) == []
    skeleton, solution = exercise.sources(solved=False), exercise.sources(solved=True)
    assert skeleton != solution
    for text in (*skeleton.values(), *solution.values()):
        assert text.count(BEGIN) == text.count(END)
    assert sum(text.count(BEGIN) for text in skeleton.values()) == 1


WITH_BARS = [exercise for exercise in EXERCISES if any(case.at_most for case in exercise.cases)]


@pytest.mark.parametrize("exercise", WITH_BARS, ids=lambda one: one.name)
def test_bars_are_tight(exercise: Exercise, tmp_path: Path) -> None:
    """One less than the bar is out of reach: no skeleton passes by a generous number."""
    stage = exercise.stage() if exercise.solved_by_rung else working_copy(exercise, tmp_path, solved=True)
    for case in exercise.cases:
        tighter = replace(case, at_most={column: most - 1 for column, most in case.at_most.items()})
        verdict = judge(replace(exercise, cases=(tighter,)), stage)
        assert len(verdict.findings) == len(case.at_most)
