"""Compacted SVG: fewer letters, the same shapes and texts."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ladder.show.plots import as_svg, new_figure
from ladder.show.plots.compact import compacted

FONTS = "'A', sans-serif"
CORNERS = "M 1.234567 9 \nL 5 9 \nL 5 2 \nL 1.234567 2 \nz\n"
SHARP = "fill: #ffffff; stroke-linejoin: miter"


def path(data: str, style: str = SHARP) -> str:
    return f'  <g id="patch_3">\n    <path d="{data}" clip-path="url(#p118273f674)" style="{style}"/>\n  </g>'


def test_a_rectangle_is_one() -> None:
    box = 'x="1.23" y="2.00" width="3.77" height="7.00" clip-path="url(#p118273f674)"'
    assert compacted(path(CORNERS), FONTS) == f'<rect {box} style="fill: #ffffff"/>'


def test_other_paths_stay_paths() -> None:
    slanted, open_path = CORNERS.replace("L 5 2", "L 6 2"), CORNERS.replace("z\n", "")
    for data in (slanted, open_path):
        assert f'<path d="{" ".join(data.split())}"'.replace("1.234567", "1.23") in compacted(
            path(data), FONTS
        )
    assert "<path" in compacted(path(CORNERS, "stroke: #ffffff"), FONTS)


def test_texts_keep_their_words_and_places() -> None:
    text = f'<text style="font-size: 9px; font-family: {FONTS}; fill: #222222" x="1.005" y="2"'
    turned = f'{text} transform="rotate(-90 1 2)">1.2345 a</text>'
    straight = f'{text} transform="rotate(-0 1.005 2)">M 1 2 \nL 3.14159</text>'
    shorter = '<text style="font-size: 9px; fill: #222222" x="1.00" y="2"'
    wanted = f'{shorter} transform="rotate(-90 1 2)">1.2345 a</text>{shorter}>M 1 2 \nL 3.14159</text>'
    assert compacted(turned + straight, FONTS) == wanted


def test_clips_are_named_after_their_number() -> None:
    svg = '<path clip-path="url(#pab00000000)"/><clipPath id="pab00000000"><rect/></clipPath>'
    assert set(re.findall(r"pab\w+", compacted(svg, FONTS))) == {"pab00"}


def test_a_figure_is_whole_and_names_its_fonts_once() -> None:
    figure = new_figure(3, 2)
    axes = figure.subplots()
    axes.bar([0, 1, 2], [3, 1, 2])
    axes.set_title("three bars")
    svg = as_svg(figure)
    tree = ElementTree.fromstring(svg)
    assert len([one for one in tree.iter() if one.tag.endswith("rect")]) >= 4
    assert "three bars" in [one.text for one in tree.iter() if one.tag.endswith("text")]
    fonts = re.search(r"font-family: ([^\"]*)\"", svg)
    assert fonts and "font-family" not in svg[fonts.end() :]
