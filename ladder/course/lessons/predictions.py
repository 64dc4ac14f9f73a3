"""Predictions: the reader answers a question before the lesson shows the measurement.

A first wrong answer gets a hint, a second one the reason and the number. Cells that would reveal the number
wait until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ladder.common.wording import said
from ladder.course.lessons.listing import LessonError
from ladder.course.lessons.notes import Note
from ladder.course.lessons.questions import QUESTIONS, Question

Shown = TypeVar("Shown")
#: What stands in the place of a measurement until then.
PREDICT_FIRST = "*This shows the measurement. Predict first, above, then run the cell again.*"
#: What verdicts say; the braces stand for the numbers and for the question's own words.
YOUR_TURN = "**Your turn.** Write your number in place of `None` and run the cell again."
NO_NUMBER = "**{answer!r} is no number.** Write one, without quotes."
RIGHT = "**Right: {measured:,}.** {because}"
FIRST_MISS = "**Not {answer:,}.** {hint} Try once more."
SECOND_MISS = "**Not {answer:,}: it is {measured:,}.** {because}"
#: All that there is to translate, besides the questions.
WORDS = (PREDICT_FIRST, YOUR_TURN, NO_NUMBER, RIGHT, FIRST_MISS, SECOND_MISS)


@dataclass(frozen=True)
class Verdict(Note):
    """The verdict on a prediction; ``right`` is None if none was made."""

    right: bool | None


@dataclass
class _Answers:
    """The answers given to one question: the wrong ones, and whether the right one is known by now."""

    wrong: set[float] = field(default_factory=set)
    is_known: bool = False


_answers: dict[str, _Answers] = {}


def predict(name: str, answer: float | None) -> Verdict:
    """Judges the answer to the question ``name``, or asks for it if None. Raises :class:`LessonError`."""
    question, answers = _question(name), _answers.setdefault(name, _Answers())
    if answer is None:
        return Verdict(said(YOUR_TURN), None)
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return Verdict(said(NO_NUMBER).format(answer=answer), False)
    measured, because = question.measure(), said(question.because)
    if answer == measured:
        answers.is_known = True
        return Verdict(said(RIGHT).format(measured=measured, because=because), True)
    answers.wrong.add(answer)
    if len(answers.wrong) == 1 and not answers.is_known:
        return Verdict(said(FIRST_MISS).format(answer=answer, hint=said(question.hint)), False)
    answers.is_known = True
    return Verdict(said(SECOND_MISS).format(answer=answer, measured=measured, because=because), False)


def after(name: str, show: Callable[[], Shown]) -> Shown | Note:
    """Returns ``show()`` once the answer to ``name`` is known, a note before. Raises :class:`LessonError`."""
    _question(name)
    if name in _answers and _answers[name].is_known:
        return show()
    return Note(said(PREDICT_FIRST))


def _question(name: str) -> Question:
    if name not in QUESTIONS:
        raise LessonError(f"there is no question {name!r}", f"Questions: {', '.join(QUESTIONS)}")
    return QUESTIONS[name]
