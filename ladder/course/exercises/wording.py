"""An exercise's words in the reader's language, as far as they are translated.

``exercises/<name>/<language>.toml`` has them. ``docs/translations.py`` makes these files from the catalogues.
"""

from __future__ import annotations

from dataclasses import replace

from ladder.common.wording import language
from ladder.course.exercises.definition import Exercise
from ladder.course.exercises.table import read_table


def worded(exercise: Exercise) -> Exercise:
    """The exercise with title, task, hints, afterword and goal in the reader's language.

    It is to be shown; files are made from the English one. Raises :class:`ExerciseError` for a file that
    cannot be read.
    """
    path = exercise.folder / f"{language() or 'en'}.toml"
    if not path.is_file():
        return exercise
    table = read_table(path)
    found = replace(
        exercise,
        title=table.text("title", exercise.title),
        task=table.text("task", exercise.task),
        hints=table.texts("hints") if "hints" in table else exercise.hints,
        afterword=table.text("afterword", exercise.afterword),
        gap=replace(exercise.gap, goal=table.text("goal", exercise.gap.goal)),
    )
    table.finish()
    return found
