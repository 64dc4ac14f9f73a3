"""Exercises: a rung with a gap, the student's copy of it, and the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.course.exercises.answers import Answers, RightAnswer, WrongAnswer, read_answers
    from ladder.course.exercises.checking import (
        check,
        check_gap,
        check_sources,
        check_text,
        harness_key,
        judge_folder,
        verdict_key,
    )
    from ladder.course.exercises.definition import (
        BEGIN,
        BLOCK_BARRIERS,
        END,
        GLOBAL_ATOMICS,
        PICTURE,
        Exercise,
    )
    from ladder.course.exercises.markers import (
        fill_gap,
        gap_line,
        gap_text,
        known_sources,
        marked_exercise,
        solution_text,
        source_changes,
        source_names,
    )
    from ladder.course.exercises.program_output import PRINTED, printed
    from ladder.course.exercises.reading import broken_exercises, exercises, get_exercise, read_exercise
    from ladder.course.exercises.reference_counts import counts_file, read_counts
    from ladder.course.exercises.report import PROSE_WIDTH, afterword_lines, verdict_lines
    from ladder.course.exercises.table import ExerciseError
    from ladder.course.exercises.verdict import KINDS, Verdict, counter_in_english, counter_words
    from ladder.course.exercises.wording import worded
    from ladder.course.exercises.workspace import Workspace, write_working_copy

__getattr__ = door(__name__)
