"""What else may stand in a gap: wrong answers with what the check must say of them, and other right ones.

They are data, exercises/<name>/answers.toml. The tests hold the check to them, and who has solved an
exercise is shown the other right ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from ladder.exercises.definition import Exercise
from ladder.exercises.table import Table, read_table


@dataclass(frozen=True)
class WrongAnswer:
    """``says`` are pieces of what the check says of it, ``why`` the thought or the slip behind it."""

    why: str
    text: str
    says: tuple[str, ...]


@dataclass(frozen=True)
class RightAnswer:
    """Right, and not what the rung has."""

    why: str
    text: str


@dataclass(frozen=True)
class Answers:
    wrong: tuple[WrongAnswer, ...] = ()
    right: tuple[RightAnswer, ...] = ()


def read_answers(exercise: Exercise) -> Answers:
    """The answers of an exercise; none where it has no answers.toml. Raises :class:`ExerciseError`."""
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
