"""Renders results as tables and lines for the terminal, and as HTML pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.render.access import (
        explanation_lines,
        exploration_lines,
    )
    from ladder.render.findings import (
        finding_table,
        findings_lines,
        remark_lines,
    )
    from ladder.render.lines_page import (
        page,
    )
    from ladder.render.placement import (
        placed_line_lines,
        placement_lines,
    )
    from ladder.render.profile import (
        bounds_table,
        line_tables,
        most_stalled,
        note,
        profile_tables,
    )
    from ladder.render.report_page import (
        Report,
        RungReport,
        report_document,
    )
    from ladder.render.tables import (
        comparison_table,
        comparison_tables,
        launches_tables,
        source_note,
        source_table,
        stages_table,
    )

_NAMES = {
    "Report": "report_page",
    "RungReport": "report_page",
    "bounds_table": "profile",
    "comparison_table": "tables",
    "comparison_tables": "tables",
    "explanation_lines": "access",
    "exploration_lines": "access",
    "finding_table": "findings",
    "findings_lines": "findings",
    "remark_lines": "findings",
    "launches_tables": "tables",
    "line_tables": "profile",
    "most_stalled": "profile",
    "note": "profile",
    "page": "lines_page",
    "placed_line_lines": "placement",
    "placement_lines": "placement",
    "profile_tables": "profile",
    "report_document": "report_page",
    "source_note": "tables",
    "source_table": "tables",
    "stages_table": "tables",
}

__getattr__ = door(__name__, _NAMES)
