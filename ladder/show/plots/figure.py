"""What all pictures share: new figures, colours, cells and saving."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.common import files
from ladder.errors import LadderError
from ladder.show.plots.compact import compacted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that can be told apart with any common kind of colour blindness (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, SKY, YELLOW, PURPLE = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#F0E442", "#CC79A7"
GREY, LIGHT, INK = "#8A8A8A", "#ECECEC", "#222222"
#: An SVG's text stays text, which can be searched and translated, in fonts as wide as matplotlib's own. The
#: same figure always gives the same file.
AS_TEXT = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ladder",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
}


_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def require_matplotlib() -> None:
    """Raises :class:`LadderError` without matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        hint = "make lab installs the extra notebooks, which has it; or: pip install matplotlib"
        raise LadderError("pictures need matplotlib", hint) from None


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Makes an empty figure without pyplot's global state. Raises :class:`LadderError` without matplotlib."""
    require_matplotlib()
    from matplotlib import rc_context

    # On a slide of this width, 12 points can be read from the last row of a lecture room.
    with rc_context({"font.size": 12}):
        return _picture_class()(figsize=(width_inches, height_inches), layout="constrained")


@cache
def _picture_class() -> type[Figure]:
    """A Figure subclass that notebooks display without pyplot and its global state."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_svg_(self) -> str:
            return as_svg(self)

    return Picture


def as_svg(figure: Figure, description: str = "") -> str:
    """The figure as a part of a page: no wider than that, and its titles, or else its label, as a text for
    readers who do not see it. The ``description`` is in its metadata.
    """
    from matplotlib import rc_context

    titles = [figure.get_suptitle()]
    for axes in figure.axes:
        titles += [axes.get_title("left"), axes.get_title("center"), axes.get_title("right")]
    title = "; ".join(line for one in dict.fromkeys(titles) for line in one.splitlines())
    title = title or str(figure.get_label())
    buffer = io.StringIO()
    with rc_context(AS_TEXT):  # type: ignore[arg-type]
        figure.savefig(
            buffer, format="svg", metadata={**_NO_METADATA, "Title": title, "Description": description}
        )
    _, start, rest = buffer.getvalue().partition("<svg ")
    fonts = ", ".join(font if font == "sans-serif" else f"'{font}'" for font in AS_TEXT["font.sans-serif"])
    style = f"max-width: 100%; height: auto; font-family: {fonts}"
    return f'{start}role="img" style="{style}" {compacted(rest, fonts)}'


def shades(count: int) -> list[str]:
    """``count`` colours from dark to light (cividis), distinct with any kind of colour blindness."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["cividis"](number / max(1, count - 1))) for number in range(count)]


def ink_on(colour: str) -> str:
    """Black or white, whichever is legible on ``colour``, which is given as #rrggbb."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 127 else "white"


def cell(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    colour: str,
    text: str = "",
    *,
    size: float = 12,
    bold: bool = False,
) -> None:
    """Draws a filled rectangle with text; (x, y) is its upper left corner on an inverted y axis."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, edgecolor="white", linewidth=1))
    if text:
        axes.text(
            x + width / 2, y + height / 2, text, ha="center", va="center_baseline", color=ink_on(colour),
            fontsize=size, fontweight="bold" if bold else "normal",
        )  # fmt: skip


def frame(axes: Axes, x: float, y: float) -> None:
    """Draws an orange frame around the unit square at (x, y), on top of everything else."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=ORANGE, linewidth=3, zorder=3))


def bare(axes: Axes, columns: float, rows: float) -> None:
    """Sets up ``columns`` x ``rows`` square units without frame and ticks, with the first row on top."""
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(False)


def check_kind(path: Path) -> None:
    """Raises :class:`LadderError` unless a picture of this suffix can be written."""
    require_matplotlib()
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise LadderError(
            f"{path} ends in none of .png, .svg, .pdf", "The ending says which kind is written."
        )


def save(figure: Figure, path: Path) -> None:
    """Writes PNG, SVG or PDF, according to the suffix. Raises :class:`LadderError`."""
    check_kind(path)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lower().removeprefix("."), dpi=150)
    files.write(path, buffer.getvalue())
