"""Every exercise's solution is right, and its limits are tight. test_answers covers wrong answers."""

from __future__ import annotations

import os
import random
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from exercise_cost import is_quick

from ladder.course.exercises import (
    BEGIN,
    END,
    Exercise,
    broken_exercises,
    exercises,
    solution_text,
    source_changes,
    write_working_copy,
)
from ladder.course.exercises.definition import Case, Run
from ladder.course.exercises.judge import judge
from ladder.course.exercises.markers import closable
from ladder.course.exercises.programs import judge_program
from ladder.course.exercises.reference_counts import recorded, reference_counts
from ladder.stages import Stage, discover, read_stage

EXERCISES = exercises()


#: Whose solutions are tried by default.
SOME = [one for one in EXERCISES if one.number == 1 and is_quick(one)]
T = TypeVar("T", Case, Run)


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


#: How many exercises each step of a ladder has at least, all rungs of its number together, like v6 to v6e.
LEAST = {
    **dict.fromkeys([*(f"v{n}" for n in range(1, 11)), *(f"b{n}" for n in range(1, 6)), "h1", "h6"], 3),
    **dict.fromkeys([f"d{n}" for n in range(1, 6)], 4),
}


def test_all_can_be_read() -> None:
    assert broken_exercises() == {}


@pytest.mark.parametrize("step", LEAST)
def test_there_are_some_per_step(step: str) -> None:
    rungs = {stage.name for stage in discover() if re.match(rf"{step}(?!\d)", stage.name)}
    assert sum(exercise.rung in rungs for exercise in EXERCISES) >= LEAST[step]


def test_programs_come_first_and_lead_from_the_easiest_to_the_hardest() -> None:
    programs = [one for one in EXERCISES if one.rung is None and not one.is_last]
    assert EXERCISES[: len(programs)] == tuple(programs)
    assert [one.number for one in programs] == list(range(1, len(programs) + 1))
    assert programs[0].name == "cuda_map" and len(programs) >= 20
    # What to read after one is about five lines.
    assert [one.name for one in programs if not 4 <= len(textwrap.wrap(one.afterword, 115)) <= 7] == []


def require_right(exercise: Exercise, folder: Path) -> None:
    """If the rung itself is the solution, its build is reused."""
    if exercise.rung is None:
        verdict = judge_program(exercise, exercise.folder / exercise.main_file)
    elif exercise.solved_by_origin:
        verdict = judge(exercise, exercise.stage())
    else:
        verdict = judge(exercise, working_copy(exercise, folder, solved=True))
    assert verdict.passed, verdict.findings
    assert verdict.counted_on in verdict.right and any(verdict.counts.values())
    known = reference_counts(exercise)
    assert known is None or recorded(verdict) == {"on": known.on, "counts": known.counts}


def test_the_counts_of_all_programs_are_known() -> None:
    assert [one.name for one in EXERCISES if one.rung is None and reference_counts(one) is None] == []


@pytest.mark.parametrize("exercise", SOME, ids=lambda one: one.name)
def test_solution_is_right(exercise: Exercise, tmp_path: Path) -> None:
    require_right(exercise, tmp_path)


@pytest.mark.full
def test_every_solution_is_right(exercise: Exercise, tmp_path: Path) -> None:
    require_right(exercise, tmp_path)


def test_hints_close_what_they_open(exercise: Exercise) -> None:
    """The last hint is code, to be copied as it is."""
    pairs = {")": "(", "]": "[", "}": "{"}
    for hint in exercise.hints:
        unclosed: list[str] = []
        for sign in hint:
            if sign in pairs.values():
                unclosed.append(sign)
            elif sign in pairs:
                assert unclosed and unclosed.pop() == pairs[sign], hint
        assert unclosed == [], hint


def test_solution_is_the_rung(exercise: Exercise) -> None:
    """The solution is the rung itself, whose own tests show that it is right."""
    if exercise.rung is not None and exercise.solved_by_origin:
        stage = exercise.stage()
        for file, text in exercise.sources(solved=True).items():
            rung_text = stage.source(file).read_text().replace(stage.name, exercise.name)
            assert without_markers(text) == rung_text


def test_solution_changes_the_marked_lines_alone(exercise: Exercise, tmp_path: Path) -> None:
    write_working_copy(exercise, tmp_path, solved=True)
    assert source_changes(exercise, tmp_path) == []
    skeleton, solution = exercise.sources(solved=False), exercise.sources(solved=True)
    assert skeleton != solution
    for text in (*skeleton.values(), *solution.values()):
        assert text.count(BEGIN) == text.count(END)
    assert sum(text.count(BEGIN) for text in skeleton.values()) == 1


def test_what_is_hidden_from_a_working_copy_is_nothing_but_other_solutions(exercise: Exercise) -> None:
    """With the hidden lines put back in place of what announces them, it is what it would be."""
    others = closable(exercise)
    shown, hidden = exercise.sources(solved=False), exercise.sources(solved=False, closed=others)
    headers = {name: text for name, text in hidden.items() if name not in shown}
    for file, text in shown.items():
        again = re.sub(
            r'(?m)^ *// exercise \w+: .*\n#include "(?:\.\./)*(others/\w+\.h)"\n',
            lambda found: headers.pop(found[1]),
            hidden[file],
        )
        assert again == text
    assert headers == {}
    for one in others:
        longest = max(solution_text(one).splitlines(), key=len)
        assert hidden[one.gap.file].count(longest) < shown[one.gap.file].count(longest), one.name


def test_a_third_of_the_exercises_has_something_to_hide() -> None:
    assert sum(bool(closable(one)) for one in EXERCISES) > len(EXERCISES) / 3


WITH_BARS = [one for one in EXERCISES if any(tried.at_most for tried in (*one.cases, *one.runs))]
#: Of programs a few, since each takes a compiler's run; EXERCISE_SEED selects others.
FEW = random.Random(os.environ.get("EXERCISE_SEED", "0")).sample(
    [one for one in WITH_BARS if one.rung is None], 3
)


def is_tried(exercise: Exercise) -> bool:
    return exercise in FEW if exercise.rung is None else is_quick(exercise)


BARS = [pytest.param(one, marks=[] if is_tried(one) else [pytest.mark.full]) for one in WITH_BARS]


def tighter(tried: T) -> T:
    """The same with each limit tighter by one."""
    found = replace(tried, at_most={column: most - 1 for column, most in tried.at_most.items()})
    if isinstance(found, Case):
        found = replace(found, at_least={column: least + 1 for column, least in found.at_least.items()})
    return found


@pytest.mark.parametrize("exercise", BARS, ids=lambda one: one.name)
def test_bars_are_tight(exercise: Exercise, tmp_path: Path) -> None:
    """A limit one lower is out of reach, so no generous limit lets a skeleton pass."""
    if exercise.rung is None:
        for run in exercise.runs:
            verdict = judge_program(replace(exercise, runs=(tighter(run),)), exercise.folder / "program.cu")
            assert len(verdict.findings) == len(run.at_most)
        return
    stage = exercise.stage() if exercise.solved_by_origin else working_copy(exercise, tmp_path, solved=True)
    for case in exercise.cases:
        verdict = judge(replace(exercise, cases=(tighter(case),)), stage)
        assert len(verdict.findings) == len(case.at_most) + len(case.at_least)
        assert all(case.reason in finding.text for finding in verdict.findings)
