"""Exercises: a rung with a gap, the student's copy of it, and the judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.exercises.answers import Answers, RightAnswer, WrongAnswer, read_answers
    from ladder.exercises.checking import check, check_text, judge_folder
    from ladder.exercises.definition import BEGIN, END, Exercise
    from ladder.exercises.markers import fill_gap, gap_line, gap_text, solution_text, source_changes
    from ladder.exercises.reading import exercises, get_exercise, read_exercise
    from ladder.exercises.report import afterword_lines, verdict_lines
    from ladder.exercises.table import ExerciseError
    from ladder.exercises.verdict import Verdict
    from ladder.exercises.workspace import Workspace, write_working_copy

__getattr__ = door(__name__)
