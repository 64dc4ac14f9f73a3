"""Renders a season: the standings, and a page per round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from ladder.show.render.document import document

_TEMPLATE = "season.html"


@dataclass(frozen=True)
class SeasonPlace:
    """A row: ``rank`` is 0 without one, ``count`` what ranks, ``note`` what is said beside it."""

    rank: int
    student: str
    count: int | None
    note: str = ""


@dataclass(frozen=True)
class SeasonRound:
    """An exercise with its places; ``by`` names the count in words, ``solution`` is that of the exercise."""

    exercise: str
    title: str
    task: str
    by: str
    solution: int | None
    places: Sequence[SeasonPlace]


@dataclass(frozen=True)
class SeasonPage:
    """The standings of all rounds, or with ``back``, the season's title, the page of one round."""

    title: str
    text: str
    made: str
    rounds: Sequence[SeasonRound]
    places: Sequence[SeasonPlace]
    back: str = ""


def season_document(page: SeasonPage) -> str:
    """Renders the page as one self-contained HTML file that links to the others of its folder."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return document(page.title, environment.get_template(_TEMPLATE).render(page=page))
