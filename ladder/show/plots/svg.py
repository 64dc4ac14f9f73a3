"""Small drawings of cells and arrows, as SVG with a text for readers who do not see them.

They need no matplotlib, since exercises carry them. Units are pixels of a picture 480 wide, which a telephone
shows at four fifths of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from ladder.show.plots.figure import INK, LIGHT, ink_on

WIDTH = 480
#: Of a cell, unless a drawing says otherwise.
CELL_WIDTH, CELL_HEIGHT = 40, 30
_FONT = "'DejaVu Sans', Verdana, Arial, sans-serif"
_HEAD = 7


class Drawing:
    """A drawing of ``height`` pixels; ``alt`` says in words what it shows."""

    def __init__(self, height: int, alt: str) -> None:
        self.height = height
        self.alt = " ".join(alt.split())
        self._parts: list[str] = []

    def cell(
        self, x: float, y: float, text: str = "", colour: str = LIGHT, *,
        width: float = CELL_WIDTH, height: float = CELL_HEIGHT, size: float = 14,
    ) -> None:  # fmt: skip
        """A filled rectangle with text; (x, y) is its upper left corner."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}" '
            'stroke="white" stroke-width="2"/>'
        )
        if text:
            self.text(x + width / 2, y + height / 2, text, size=size, colour=ink_on(colour))

    def row(
        self, x: float, y: float, texts: Sequence[str], colours: str | Sequence[str] = LIGHT, *,
        width: float = CELL_WIDTH, height: float = CELL_HEIGHT, size: float = 14,
    ) -> None:  # fmt: skip
        """Cells side by side, of one colour or of a colour each."""
        each = [colours] * len(texts) if isinstance(colours, str) else colours
        for number, (text, colour) in enumerate(zip(texts, each, strict=True)):
            self.cell(x + number * width, y, text, colour, width=width, height=height, size=size)

    def frame(
        self, x: float, y: float, width: float, height: float, colour: str = INK, *, dashed: bool = False
    ) -> None:
        """An outline on top of what is drawn already."""
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="none" '
            f'stroke="{colour}" stroke-width="3"{dashes}/>'
        )

    def text(
        self, x: float, y: float, text: str, *,
        size: float = 14, colour: str = INK, anchor: str = "middle", bold: bool = False,
    ) -> None:  # fmt: skip
        """A line of text, whose middle is at height y; ``anchor`` is start, middle or end."""
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y + 0.35 * size:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def line(
        self, x0: float, y0: float, x1: float, y1: float, colour: str = INK, *, dashed: bool = False
    ) -> None:
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        self._parts.append(
            f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" stroke="{colour}" '
            f'stroke-width="2"{dashes}/>'
        )

    def arrow(self, x0: float, y0: float, x1: float, y1: float, colour: str = INK) -> None:
        """A line that ends in a head at (x1, y1)."""
        length = math.hypot(x1 - x0, y1 - y0)
        along_x, along_y = (x1 - x0) / length, (y1 - y0) / length
        back_x, back_y = x1 - _HEAD * along_x, y1 - _HEAD * along_y
        self.line(x0, y0, back_x, back_y, colour)
        corners = (
            (x1, y1),
            (back_x - 0.5 * _HEAD * along_y, back_y + 0.5 * _HEAD * along_x),
            (back_x + 0.5 * _HEAD * along_y, back_y - 0.5 * _HEAD * along_x),
        )
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self._parts.append(f'<polygon points="{points}" fill="{colour}"/>')

    def svg(self) -> str:
        """The drawing, on white, so that it can be read on a dark page, too."""
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH}" height="{self.height}" font-family="{_FONT}" '
            'style="max-width: 100%; height: auto">\n'
            f"<title>{escape(self.alt)}</title>\n"
            f'<rect width="{WIDTH}" height="{self.height}" fill="white"/>\n{body}\n</svg>\n'
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows."""
        return {"image/svg+xml": self.svg(), "text/plain": f"Picture: {self.alt}"}
