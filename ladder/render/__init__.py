"""Renders results as tables and lines for the terminal, and as HTML pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.render.access import explanation_lines, exploration_lines
    from ladder.render.class_page import (
        ClassCell,
        ClassPage,
        ClassRow,
        Stop,
        StuckStudent,
        class_document,
    )
    from ladder.render.findings import finding_table, findings_lines, remark_lines
    from ladder.render.lines_page import page
    from ladder.render.placement import placed_line_lines, placement_lines
    from ladder.render.profile import bounds_table, line_tables, most_stalled, note, profile_tables
    from ladder.render.report_page import Report, RungReport, report_document
    from ladder.render.story import STORY_NOTE, story_table, verdict_line
    from ladder.render.tables import (
        comparison_table,
        comparison_tables,
        launch_lines_table,
        launches_tables,
        plain_table,
        source_note,
        source_table,
        stages_table,
        uncounted_line,
    )

__getattr__ = door(__name__)
