"""An exercise's words in the reader's language, as far as they are translated."""

from __future__ import annotations

from dataclasses import replace

from ladder.common.wording import said, said_by_paragraphs
from ladder.course.exercises.definition import Exercise


def worded(exercise: Exercise) -> Exercise:
    """The exercise with title, task, hints, afterword and goal in the reader's language.

    It is to be shown; files are made from the English one.
    """
    return replace(
        exercise,
        title=said(exercise.title),
        task=said_by_paragraphs(exercise.task),
        hints=tuple(said(hint.strip()) for hint in exercise.hints),
        afterword=said_by_paragraphs(exercise.afterword),
        gap=replace(exercise.gap, goal=said(exercise.gap.goal)),
    )
