"""Known answers to exercises: wrong ones with what the check must say about them, and alternative right ones.

They are read from exercises/<name>/answers.toml. The tests hold the check to them, and students who have
solved an exercise are shown the alternatives.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.exercises.definition import Exercise
from ladder.exercises.table import Table, read_table


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
    answers = Answers(
        wrong=tuple(_wrong(one) for one in table.tables("wrong", [])),
        right=tuple(_right(one) for one in table.tables("right", [])),
    )
    table.finish()
    return answers


def _wrong(table: Table) -> WrongAnswer:
    answer = WrongAnswer(table.text("why"), table.text("text"), table.texts("says"))
    table.finish()
    return answer


def _right(table: Table) -> RightAnswer:
    answer = RightAnswer(table.text("why"), table.text("text"))
    table.finish()
    return answer
