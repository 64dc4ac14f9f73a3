"""A season: a few exercises whose solutions are ranked by counts, as static pages that anybody can host."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from ladder import project
from ladder.course.classroom.grading import SOLVED, Grade, Grades, grade_class
from ladder.course.exercises import Exercise, counter_words, counts_file, get_exercise, read_counts
from ladder.errors import LadderError
from ladder.run.emulator import COUNTERS
from ladder.show.render import SeasonPage, SeasonPlace, SeasonRound

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class SeasonError(LadderError):
    """The file of a season cannot be read, or names an exercise or a count that does not exist."""


@dataclass(frozen=True)
class Round:
    """An exercise, and the counts whose sum ranks its solutions, the smallest first."""

    exercise: Exercise
    by: Sequence[str]

    def count(self, counts: Mapping[str, int | None]) -> int | None:
        """The sum; None if the emulator does not know one of them. A count that is not recorded is 0."""
        values = [counts.get(name, 0) for name in self.by]
        return None if None in values else sum(value or 0 for value in values)


@dataclass(frozen=True)
class Season:
    title: str
    text: str
    rounds: Sequence[Round]


def read_season(path: Path) -> Season:
    """Reads a season's file: ``title``, ``text`` and tables ``rounds``. Raises :class:`SeasonError`, and
    :class:`ExerciseError` for an unknown exercise.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SeasonError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SeasonError(f"{path} is not TOML: {error}") from error
    rounds = table.get("rounds")
    if not isinstance(rounds, list) or not rounds:
        raise SeasonError(f"{path} has no rounds", "classroom/season/season.toml is an example.")
    return Season(
        str(table.get("title", "Season")), str(table.get("text", "")), [_round(one, path) for one in rounds]
    )


def _round(table: Mapping[str, Any], path: Path) -> Round:
    by = table.get("by", [])
    unknown = [name for name in by if name not in COUNTERS] if isinstance(by, list) else [by]
    if not by or unknown:
        what = f"{unknown[0]!r} is no count" if unknown else "a round has no counts"
        raise SeasonError(f"{path}: {what}", f"by lists some of {', '.join(COUNTERS)}.")
    return Round(get_exercise(str(table.get("exercise", ""))), by)


def season_pages(folder: Path, season: Season, jobs: int = 0) -> tuple[dict[str, SeasonPage], Sequence[str]]:
    """Grades what is handed in and ranks it: pages by file name, and sentences on what cannot be graded.

    Raises what :func:`ladder.course.classroom.grade_class` raises.
    """
    grades = grade_class(folder, [one.exercise.name for one in season.rounds], jobs)
    made = f"Counted by flash-ladder {project.version()} on {date.today()}."
    rounds = [_ranked(one, grades) for one in season.rounds]
    pages = {
        "index.html": SeasonPage(season.title, season.text, made, rounds, _standings(rounds, grades.students))
    }
    for one in rounds:
        pages[f"{one.exercise}.html"] = SeasonPage(one.title, one.task, made, [one], one.places, season.title)
    return pages, grades.refused


def _ranked(of: Round, grades: Grades) -> SeasonRound:
    """The round with its places: right solutions by their count, then the others. Equal counts have equal
    ranks.
    """
    own = [grades.by[student, of.exercise.name] for student in grades.students if _has(grades, student, of)]
    right = [(count, one.student) for one in own if (count := _count(of, one)) is not None]
    places = [
        SeasonPlace(1 + sum(other < count for other, _ in right), student, count)
        for count, student in sorted(right)
    ]
    ranked = {student for _, student in right}
    places += [SeasonPlace(0, one.student, None, one.case) for one in own if one.student not in ranked]
    solution = read_counts(counts_file()).get(of.exercise.name)
    return SeasonRound(
        exercise=of.exercise.name,
        title=of.exercise.title,
        task=of.exercise.task,
        by=" + ".join(counter_words(name) for name in of.by),
        solution=of.count(solution["counts"]) if solution else None,
        places=places,
    )


def _has(grades: Grades, student: str, of: Round) -> bool:
    return (student, of.exercise.name) in grades.by


def _count(of: Round, grade: Grade) -> int | None:
    return of.count(grade.counts) if grade.state == SOLVED else None


def _standings(rounds: Sequence[SeasonRound], students: Sequence[str]) -> list[SeasonPlace]:
    """Who has solved most comes first; of these, whose ranks have the smallest sum."""
    ranks = {
        student: [
            place.rank for one in rounds for place in one.places if place.student == student and place.rank
        ]
        for student in students
    }
    keys = {student: (-len(found), sum(found)) for student, found in ranks.items()}
    return [
        SeasonPlace(
            1 + sum(other < keys[student] for other in keys.values()),
            student,
            sum(ranks[student]),
            f"{len(ranks[student])} of {len(rounds)}",
        )
        for student in sorted(students, key=lambda one: (keys[one], one))
    ]
