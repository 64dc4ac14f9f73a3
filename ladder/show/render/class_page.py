"""Renders the grades of a class as one page: who is stuck where, then a table of everybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from ladder.show.render.document import document

_TEMPLATE = "class.html"


@dataclass(frozen=True)
class StuckStudent:
    """A student who has started an exercise and not solved it; ``effort`` is the tries and hints in words."""

    student: str
    effort: str
    case: str
    text: str


@dataclass(frozen=True)
class Stop:
    """An exercise at which students are stuck, and how many have ``solved`` it."""

    exercise: str
    title: str
    solved: int
    stuck: Sequence[StuckStudent]


@dataclass(frozen=True)
class ClassCell:
    """A cell of the table; ``style`` is a class of page.css, ``title`` is shown under the pointer."""

    text: str
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class ClassRow:
    student: str
    cells: Sequence[ClassCell]
    solved: int


@dataclass(frozen=True)
class ClassPage:
    title: str
    made: str
    summary: str
    refused: Sequence[str]
    stops: Sequence[Stop]
    exercises: Sequence[str]
    rows: Sequence[ClassRow]


def class_document(page: ClassPage) -> str:
    """Renders the page as one self-contained HTML file."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return document(page.title, environment.get_template(_TEMPLATE).render(page=page))
