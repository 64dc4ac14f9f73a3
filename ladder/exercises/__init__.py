"""Exercises: a rung with a gap, the student's copy of it, and the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.exercises.definition import (
        BEGIN,
        END,
        Exercise,
        ExerciseError,
        exercises,
        get_exercise,
        read_exercise,
    )
    from ladder.exercises.judge import (
        Verdict,
        check,
    )
    from ladder.exercises.workspace import (
        Workspace,
        places,
        source_changes,
        write_working_copy,
    )

_NAMES = {
    "BEGIN": "definition",
    "END": "definition",
    "Exercise": "definition",
    "ExerciseError": "definition",
    "Verdict": "judge",
    "Workspace": "workspace",
    "check": "judge",
    "exercises": "definition",
    "get_exercise": "definition",
    "places": "workspace",
    "read_exercise": "definition",
    "source_changes": "workspace",
    "write_working_copy": "workspace",
}

__getattr__ = door(__name__, _NAMES)
