"""Makes the SVG that matplotlib writes smaller. It draws the same."""

from __future__ import annotations

import re
from collections.abc import Callable

#: A coordinate has two decimals, hundredths of a point.
_LONG_DECIMAL = re.compile(r"(\d\.\d\d)\d+")
_PATH = re.compile(r'<path d="([^"]*)"([^>]*)/>')
#: The four corners of a closed path.
_CORNERS = re.compile(r"M (\S+) (\S+) L (\S+) (\S+) L (\S+) (\S+) L (\S+) (\S+) (?:L \1 \2 )?z")
_ALONE = re.compile(r'<g id="(?:patch|text)_\d+">\s*(<(?:path|rect)\b[^>]*/>|<text\b[^<]*</text>)\s*</g>')
_TEXT = re.compile(r"(<(?:text|title)\b.*?</)", re.DOTALL)
_ROTATION_BY_NOTHING = re.compile(r' transform="rotate\(-0 [^"]*\)"')
_CLIP = re.compile(r'<clipPath id="(p[0-9a-f]{10})">')
#: How matplotlib's rectangles meet at their corners; said once, in the style sheet.
_MITER, _STYLES = "; stroke-linejoin: miter", "*{stroke-linejoin: round; stroke-linecap: butt}"
_INDENT = re.compile(r"^ +", re.MULTILINE)


def compacted(svg: str, fonts: str) -> str:
    """The SVG without indentation, groups of one shape, rotations by nothing and long names; ``fonts``, which
    each text names, are those of the whole.
    """
    svg = _outside_texts(svg, lambda part: _LONG_DECIMAL.sub(r"\1", _PATH.sub(_shape, part)))
    svg = re.sub(r"<text [^>]*>", lambda found: _LONG_DECIMAL.sub(r"\1", found[0]), svg)
    svg = _ROTATION_BY_NOTHING.sub("", svg.replace(f"font-family: {fonts}; ", ""))
    svg = _INDENT.sub("", _ALONE.sub(r"\1", svg))
    for number, name in enumerate(_CLIP.findall(svg)):
        svg = svg.replace(name, f"{name[:4]}{number}")
    return svg.replace(_STYLES, _STYLES + "rect{stroke-linejoin: miter}", 1)


def _outside_texts(svg: str, change: Callable[[str], str]) -> str:
    parts = _TEXT.split(svg)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def _shape(found: re.Match[str]) -> str:
    """The path in one line, or the rectangle that it is if its corners are sharp."""
    line, rest = " ".join(found[1].split()), found[2]
    sharp = _MITER in rest or "stroke" not in rest
    if sharp and (corners := _CORNERS.fullmatch(line)):
        left, top, right, bottom = _box([float(number) for number in corners.groups()])
        if right > left:
            size = f'width="{right - left:.2f}" height="{bottom - top:.2f}"'
            return f'<rect x="{left:.2f}" y="{top:.2f}" {size}{rest.replace(_MITER, "")}/>'
    return f'<path d="{line}"{rest}/>'


def _box(numbers: list[float]) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of four corners; nothing wide if they are no upright rectangle's."""
    xs, ys = numbers[::2], numbers[1::2]
    corners = set(zip(xs, ys, strict=True))
    if len(corners) != 4 or len(set(xs)) != 2 or len(set(ys)) != 2:
        return (0.0, 0.0, 0.0, 0.0)
    return min(xs), min(ys), max(xs), max(ys)
