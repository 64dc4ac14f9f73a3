"""Grades a class: each exercise that was handed in is judged once, several at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ladder.common import processes
from ladder.common.progress import Steps, steps
from ladder.course.classroom.kept import Kept, kept
from ladder.course.classroom.students import Submission, SubmissionError, submissions
from ladder.course.exercises import (
    BEGIN,
    Exercise,
    ExerciseError,
    check_sources,
    exercises,
    get_exercise,
    marked_exercise,
    verdict_key,
)

SOLVED, UNSOLVED, UNREADABLE, NOT_STARTED = "solved", "not solved", "unreadable", "not started"


@dataclass(frozen=True)
class Grade:
    """What one student has of one exercise.

    ``tries`` and ``hints`` are what the student's own record says, None if it says nothing. ``case`` is the
    first failing case in a few words, ``text`` all that the check says of it. ``counts`` are a right
    solution's, on the problem or run with the largest ones.
    """

    student: str
    exercise: str
    state: str
    tries: int | None = None
    hints: int | None = None
    case: str = ""
    text: str = ""
    counts: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Grades:
    """The grades of a class: ``by[student, exercise]``, and sentences on what could not be graded."""

    students: Sequence[str]
    exercises: Sequence[Exercise]
    by: Mapping[tuple[str, str], Grade]
    refused: Sequence[str]


@dataclass(frozen=True)
class _Judged(Kept):
    solved: bool
    case: str
    text: str
    counts: Mapping[str, int | None]


@dataclass(frozen=True)
class _Job:
    submission: Submission
    exercise: Exercise
    record: Mapping[str, object]


@processes.ended_by_signals()
def grade_class(folder: Path, names: Sequence[str] = (), jobs: int = 0) -> Grades:
    """Grades the exercises of these names, by default those that anybody has started, ``jobs`` at a time, by
    default one per core.

    Each student's code runs in processes of its own, see :mod:`ladder.common.isolation`; this process never
    loads it. A verdict is kept, so a run that was interrupted goes on where it was.

    Raises :class:`SubmissionError` if ``folder`` is not a class's, :class:`ExerciseError` for an unknown
    name, and errors of the machine, such as :class:`ToolchainError`.
    """
    known = {exercise.name: exercise for exercise in exercises()}
    wanted = {name: get_exercise(name) for name in names}
    class_ = submissions(folder)
    if any(one.student in known for one in class_):
        raise SubmissionError(
            f"{folder} holds exercises, as one student's folder does",
            "Name the folder above it, which holds a folder for each student.",
        )
    refused: list[str] = []
    work: list[_Job] = []
    for submission in class_:
        started = _started(submission, refused)
        record = _record(submission, refused) if started else {}
        work += [_Job(submission, known[name], record) for name in started if not wanted or name in wanted]
    with (
        steps("Grading", len(work)) as progress,
        processes.Pool(max_workers=jobs or os.cpu_count()) as pool,
    ):
        grades = [*pool.map(lambda job: _grade(job, progress), work)]
    refused += [grade.text for grade in grades if grade.state == UNREADABLE]
    by = {(grade.student, grade.exercise): grade for grade in grades}
    shown = wanted or {grade.exercise for grade in grades}
    return Grades(
        [one.student for one in class_],
        [exercise for exercise in exercises() if exercise.name in shown],
        by,
        refused,
    )


def _started(submission: Submission, refused: list[str]) -> list[str]:
    """The exercises that were handed in; sentences on what is none of them go to ``refused``."""
    try:
        names = submission.handed_in()
    except SubmissionError as error:
        refused.append(error.message)
        return []
    started = []
    for name in names:
        try:
            get_exercise(name)
            started.append(name)
        except ExerciseError as error:
            refused.append(f"{submission.student}/{name}: {error.message}")
    lone = submission.lone_file()
    if lone is not None:
        found = _exercise_of(submission, lone, refused)
        started += [found] if found is not None and found not in started else []
    elif not names:
        refused.append(_nothing(submission))
    return started


def _exercise_of(submission: Submission, lone: Path, refused: list[str]) -> str | None:
    """The exercise of a file without its folder, by its marker; if it has none, a sentence is ``refused``."""
    try:
        found = marked_exercise(submission.read(lone).decode("utf-8", "replace"))
    except SubmissionError as error:
        refused.append(error.message)
        return None
    if found is None:
        refused.append(
            f"{submission.student}/{lone.name} has no line {BEGIN}: ... of an exercise. Hand in the file of "
            "a working copy, as my_exercises/NAME/kernel.cu, or its folder."
        )
        return None
    return found.name


def _nothing(submission: Submission) -> str:
    """Says what is there instead of exercises, and what was expected."""
    others = submission.others()
    text = f"{submission.student} has handed in nothing"
    if others:
        text += f" that is an exercise, but {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}"
    if any(name.endswith(_ARCHIVES) for name in others):
        return f"{text}. Unpack the archive in this folder."
    return (
        f"{text}. Expected are folders such as cuda_map with program.cu, or my_exercises with such folders."
    )


#: Suffixes of files that hold folders.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".xz")


def _record(submission: Submission, refused: list[str]) -> Mapping[str, object]:
    """The student's own record of tries and hints; it counts for nothing else."""
    path = submission.work / ".progress.json"
    try:
        found = json.loads(submission.read(path)) if path.is_symlink() or path.exists() else {}
    except (SubmissionError, ValueError, RecursionError) as error:
        found = None
        text = error.message if isinstance(error, SubmissionError) else f"{path} is not JSON"
        refused.append(f"{text}; there are no tries and hints of {submission.student}")
    return found if isinstance(found, dict) else {}


def _recorded(job: _Job, what: str) -> int | None:
    entry = job.record.get(job.exercise.name)
    value = entry.get(what) if isinstance(entry, dict) else None
    return value if type(value) is int and value >= 0 else None


def _grade(job: _Job, progress: Steps) -> Grade:
    student, exercise = job.submission.student, job.exercise
    tries, hints = _recorded(job, "tries"), _recorded(job, "hints")
    with progress.step(f"{student} {exercise.name}"):
        try:
            sources = job.submission.sources(exercise)
        except SubmissionError as error:
            return Grade(student, exercise.name, UNREADABLE, tries, hints, "unreadable", error.message)
        found = kept(_Judged, verdict_key(exercise, sources), lambda: _judge(exercise, sources))
    state = SOLVED if found.solved else UNSOLVED
    return Grade(student, exercise.name, state, tries, hints, found.case, found.text, found.counts)


def _judge(exercise: Exercise, sources: Mapping[str, bytes]) -> _Judged:
    verdict = check_sources(exercise, sources, shown_as=Path(exercise.name))
    text = verdict.findings[0].text if verdict.findings else ""
    case = verdict.first_failing_case
    return _Judged(not verdict.was_ended, verdict.passed, case, text, dict(verdict.counts))
