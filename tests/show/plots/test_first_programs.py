"""Each first program has a drawing that can be read without seeing colours, or without seeing it at all."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from ladder.course.exercises import exercises
from ladder.errors import LadderError
from ladder.show.plots import drawing, drawing_names
from ladder.show.plots.figure import BLUE, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, SKY, YELLOW
from ladder.show.plots.svg import WIDTH

PALETTE = {BLUE, GREEN, GREY, INK, LIGHT, ORANGE, PURPLE, SKY, YELLOW, "white", "none"}
#: The width of a letter is about so much of its size.
_LETTER = 0.58
each_drawing = pytest.mark.parametrize("name", drawing_names())


def parts(name: str, kind: str) -> list[ElementTree.Element]:
    tree = ElementTree.fromstring(drawing(name).svg())
    return [part for part in tree.iter() if part.tag.endswith(f"}}{kind}")]


def test_each_program_has_a_drawing_and_others_have_none() -> None:
    programs = {one.name for one in exercises() if one.rung is None and not one.is_last}
    assert {name for name in drawing_names() if name.startswith("cuda_")} == programs
    assert all((one.drawing() is None) == (one.name not in programs) for one in exercises())


@each_drawing
def test_a_drawing_says_in_words_what_it_shows(name: str) -> None:
    [title] = parts(name, "title")
    assert title.text == drawing(name).alt and len(title.text.split()) > 15
    assert drawing(name)._repr_mimebundle_()["text/plain"] == f"Picture: {title.text}"


@each_drawing
def test_its_colours_can_be_told_apart(name: str) -> None:
    """They are those of Okabe and Ito, and greys."""
    tree = ElementTree.fromstring(drawing(name).svg())
    used = {part.get(kind) for part in tree.iter() for kind in ("fill", "stroke")} - {None}
    assert used <= PALETTE


@each_drawing
def test_nothing_is_cut_off(name: str) -> None:
    height = drawing(name).height
    for cell in parts(name, "rect"):
        x, y, right, down = (float(cell.get(key, 0)) for key in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + right <= WIDTH and y + down <= height
    for text in parts(name, "text"):
        size, x, y = (float(text.get(key, 0)) for key in ("font-size", "x", "y"))
        length = _LETTER * size * len(text.text or "")
        left = x - {"start": 0, "middle": length / 2, "end": length}[text.get("text-anchor", "")]
        assert left >= 0 and left + length <= WIDTH and size / 2 <= y <= height, text.text


def test_a_drawing_that_is_none_is_refused() -> None:
    with pytest.raises(LadderError, match="there is no drawing 'cuda_mapp'"):
        drawing("cuda_mapp")
