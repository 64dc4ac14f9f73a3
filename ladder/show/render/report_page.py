"""Renders a run as one page: the table, then each rung's costliest lines, worst access and findings."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from ladder.counts import Annotated
from ladder.counts.banks import Explanation
from ladder.run.emulator import Finding
from ladder.run.evaluation import Comparison, to_frame
from ladder.show.plots import access_picture, comparison_picture
from ladder.show.render import lines_page
from ladder.show.render.document import document
from ladder.show.render.findings import finding_facts, times_text
from ladder.show.render.measures import comparison_title, measures
from ladder.stages import Ladder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATE = "report.html"


@dataclass(frozen=True)
class RungReport:
    """The results of one rung. ``error`` says why it is wrong or did not run.

    ``annotated`` is None if it did not run, ``worst`` if no access has a conflict, and ``findings`` if it
    could not be built.
    """

    name: str
    idea: str
    error: str = ""
    annotated: Annotated | None = None
    worst: Explanation | None = None
    findings: Sequence[Finding] | None = None


@dataclass(frozen=True)
class Report:
    """A run: its tables, its rungs, and (what, detail) pairs about the machine."""

    title: str
    made: str
    comparisons: Sequence[Comparison]
    rungs: Sequence[RungReport]
    machine: Sequence[tuple[str, str]]


def report_document(report: Report, ladder: Ladder) -> str:
    """Renders the report as one self-contained HTML file. Raises :class:`LadderError` without matplotlib."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    body = environment.get_template(_TEMPLATE).render(
        report=report,
        rows=[row for comparison in report.comparisons for row in comparison.rows],
        finding_count=sum(len(rung.findings or ()) for rung in report.rungs),
        tables=[_table(comparison, ladder) for comparison in report.comparisons if comparison.rows],
        skipped=[item for comparison in report.comparisons for item in comparison.skipped.items()],
        totals=lambda rung: Markup(lines_page.totals(rung.annotated)),
        costliest=lambda rung: Markup(
            lines_page.costliest(rung.annotated, heading="h3", prefix=f"{rung.name}-")
        ),
        listings=lambda rung: Markup(
            "\n".join(lines_page.listings(rung.annotated, heading="h4", prefix=f"{rung.name}-"))
        ),
        worst=lambda rung: _picture(access_picture(rung.worst.service, rung.worst.title)),
        facts=finding_facts,
        times=times_text,
    )
    return document(report.title, body)


@dataclass(frozen=True)
class _Table:
    """A comparison as passed to the template. ``picture`` is "" if there are no counts to compare."""

    title: str
    stages: Sequence[str]
    measures: Sequence[object]
    picture: str


def _table(comparison: Comparison, ladder: Ladder) -> _Table:
    rows = comparison.rows
    counted = [row for row in rows if row["conflicts"] is not None]
    return _Table(
        comparison_title(comparison, rows),
        [row["stage"] for row in rows],
        list(measures(comparison, ladder, rows)),
        _picture(comparison_picture(to_frame(counted, comparison.operation))) if len(counted) > 1 else "",
    )


def _picture(figure: Figure) -> str:
    """The figure as a data URL."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()
