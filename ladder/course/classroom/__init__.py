"""A class: submissions graded in parallel, and rungs ranked by what they count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.course.classroom.board import Entry, rank
    from ladder.course.classroom.grading import Grade, Grades, grade_class
    from ladder.course.classroom.results import board_csv, class_page, grades_csv
    from ladder.course.classroom.season import Season, SeasonError, read_season, season_pages
    from ladder.course.classroom.students import Submission, SubmissionError, submissions

__getattr__ = door(__name__)
