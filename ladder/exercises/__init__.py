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
        check_text,
    )
    from ladder.exercises.markers import (
        fill_gap,
        gap_line,
        gap_text,
        source_changes,
    )
    from ladder.exercises.report import verdict_lines
    from ladder.exercises.workspace import (
        Workspace,
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
    "check_text": "judge",
    "exercises": "definition",
    "fill_gap": "markers",
    "gap_line": "markers",
    "gap_text": "markers",
    "get_exercise": "definition",
    "read_exercise": "definition",
    "source_changes": "markers",
    "verdict_lines": "report",
    "write_working_copy": "workspace",
}

__getattr__ = door(__name__, _NAMES)
