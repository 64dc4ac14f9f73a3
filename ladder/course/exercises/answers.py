"""Known answers to exercises: wrong ones with what the check must say about them, and alternative right ones.

They are read from exercises/<name>/answers.toml. The tests hold the check to them, and students who have
solved an exercise are shown the alternatives. An answer is given as a ``text``, or as ``changes`` of the
solution, each ``from`` a place that occurs once ``to`` what stands there instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.course.exercises.definition import Exercise
from ladder.course.exercises.markers import solution_text
from ladder.course.exercises.table import Table, read_table


@dataclass(frozen=True)
class WrongAnswer:
    """A wrong answer: ``says`` holds pieces of the check's message, ``why`` the misconception behind it."""

    why: str
    text: str
    says: tuple[str, ...]


@dataclass(frozen=True)
class RightAnswer:
    """A right answer that differs from the rung's."""

    why: str
    text: str


@dataclass(frozen=True)
class Answers:
    wrong: tuple[WrongAnswer, ...] = ()
    right: tuple[RightAnswer, ...] = ()


def read_answers(exercise: Exercise) -> Answers:
    """Reads the answers of an exercise; none if it has no answers.toml. Raises :class:`ExerciseError`."""
    path = exercise.folder / "answers.toml"
    if not path.exists():
        return Answers()
    table = read_table(path)
    solution = solution_text(exercise).strip("\n") + "\n"
    answers = Answers(
        wrong=tuple(_wrong(one, solution) for one in table.tables("wrong", [])),
        right=tuple(_right(one, solution) for one in table.tables("right", [])),
    )
    table.finish()
    return answers


def _wrong(table: Table, solution: str) -> WrongAnswer:
    answer = WrongAnswer(table.text("why"), _text(table, solution), table.texts("says"))
    table.finish()
    return answer


def _right(table: Table, solution: str) -> RightAnswer:
    answer = RightAnswer(table.text("why"), _text(table, solution))
    table.finish()
    return answer


def _text(table: Table, solution: str) -> str:
    """The answer's text, or the solution with the answer's changes."""
    if "changes" not in table:
        return table.text("text")
    text = solution
    for change in table.tables("changes"):
        old, new = change.text("from"), change.text("to")
        change.finish()
        if text.count(old) != 1:
            raise change.error(f"{old!r} occurs {text.count(old)} times in the solution, not once")
        text = text.replace(old, new)
    return text
