"""Renders results as tables and lines for the terminal, and as HTML pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.show.render.access import explanation_lines, exploration_lines
    from ladder.show.render.class_page import (
        ClassCell,
        ClassPage,
        ClassRow,
        Stop,
        StuckStudent,
        class_document,
    )
    from ladder.show.render.findings import (
        finding_table,
        findings_lines,
        party_threads,
        remark_lines,
        source_text,
        times_text,
    )
    from ladder.show.render.lines_page import page
    from ladder.show.render.placement import placed_line_lines, placement_lines
    from ladder.show.render.profile import bounds_table, line_tables, most_stalled, note, profile_tables
    from ladder.show.render.report_page import Report, RungReport, report_document
    from ladder.show.render.season_page import SeasonPage, SeasonPlace, SeasonRound, season_document
    from ladder.show.render.story import STORY_NOTE, story_table, verdict_line
    from ladder.show.render.tables import (
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
    from ladder.show.render.time_tables import (
        bound_rows,
        bound_table,
        bounding_lines_table,
        bounds_table_of_rungs,
        estimate_rows,
        estimate_table,
    )

__getattr__ = door(__name__)
