"""Grades and ranks as files: CSV for a spreadsheet, and one HTML page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from ladder import project
from ladder.course.classroom.board import Entry
from ladder.course.classroom.grading import NOT_STARTED, SOLVED, UNREADABLE, UNSOLVED, Grade, Grades
from ladder.course.exercises import Exercise
from ladder.show.render import ClassCell, ClassPage, ClassRow, Stop, StuckStudent

_HEADINGS = ("student", "exercise", "solved", "tries", "first failing case")
_SIGNS = {SOLVED: "✓", UNSOLVED: "✗", UNREADABLE: "?", NOT_STARTED: "—"}
_STYLES = {SOLVED: "good", UNSOLVED: "bad", UNREADABLE: "bad"}


def grades_csv(grades: Grades) -> str:
    """A row for each student and exercise; ``tries`` is empty where the student has no record of them."""
    rows = [
        (one.student, one.exercise, "yes" if one.state == SOLVED else "no", _known(one.tries), one.case)
        for one in _all(grades)
    ]
    return _csv(_HEADINGS, rows)


def board_csv(entries: Iterable[Entry]) -> str:
    """A row for each rung that was handed in, those in the ranking first."""
    rows = [
        (
            one.rank or "",
            one.student,
            one.computes,
            one.problem,
            *map(_known, one.counts.values()),
            one.refused,
        )
        for one in entries
    ]
    return _csv(("rank", "student", "computes", "problem", *Entry.COUNTS, "refused"), rows)


def _csv(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([_inert(cell) for cell in row] for row in rows)
    return text.getvalue()


def _inert(cell: object) -> object:
    """A text that a spreadsheet does not take for a formula: students choose their folders' names."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def _known(number: int | None) -> object:
    return "" if number is None else number


def _all(grades: Grades) -> Iterator[Grade]:
    for student in grades.students:
        for exercise in grades.exercises:
            yield _of(grades, student, exercise)


def _of(grades: Grades, student: str, exercise: Exercise) -> Grade:
    nothing = Grade(student, exercise.name, NOT_STARTED, 0, 0, NOT_STARTED)
    return grades.by.get((student, exercise.name), nothing)


def class_page(grades: Grades) -> ClassPage:
    """Who is stuck where, the exercise at which most are first."""
    stops = [stop for exercise in grades.exercises if (stop := _stop(grades, exercise)).stuck]
    solved = sum(grade.state == SOLVED for grade in grades.by.values())
    students, exercises = len(grades.students), len(grades.exercises)
    return ClassPage(
        title="The class",
        made=f"Graded by flash-ladder {project.version()} on {date.today()}.",
        summary=f"{students} students, {exercises} exercises: {solved} of {students * exercises} solved.",
        refused=grades.refused,
        stops=sorted(stops, key=lambda stop: -len(stop.stuck)),
        exercises=[exercise.name for exercise in grades.exercises],
        rows=[_row(grades, student) for student in grades.students],
    )


def _stop(grades: Grades, exercise: Exercise) -> Stop:
    of_all = [_of(grades, student, exercise) for student in grades.students]
    stuck = [
        StuckStudent(one.student, _effort(one), one.case, one.text)
        for one in of_all
        if one.state in (UNSOLVED, UNREADABLE)
    ]
    return Stop(exercise.name, exercise.title, sum(one.state == SOLVED for one in of_all), stuck)


def _effort(grade: Grade) -> str:
    words = [
        f"{number} {what if number == 1 else plural}"
        for number, what, plural in ((grade.tries, "try", "tries"), (grade.hints, "hint", "hints"))
        if number is not None
    ]
    return ", ".join(words)


def _row(grades: Grades, student: str) -> ClassRow:
    own = [_of(grades, student, exercise) for exercise in grades.exercises]
    cells = [
        ClassCell(f"{_SIGNS[one.state]} {_known(one.tries)}".strip(), _STYLES[one.state], one.case)
        if one.state != NOT_STARTED
        else ClassCell(_SIGNS[NOT_STARTED])
        for one in own
    ]
    return ClassRow(student, cells, sum(one.state == SOLVED for one in own))
