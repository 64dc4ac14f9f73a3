"""Pictures, one function each, made of data that is already there. matplotlib is loaded when one is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ladder.errors import LadderError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colours that people with any of the usual kinds of colour blindness tell apart (Okabe and Ito 2008).
BLUE, ORANGE, GREEN, SKY, YELLOW, PURPLE = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#F0E442", "#CC79A7"
GREY, LIGHT, INK = "#8A8A8A", "#ECECEC", "#222222"


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure without any global state. Raises :class:`LadderError` without matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise LadderError("pictures need matplotlib", "pip install matplotlib") from None
    # A size in a lecture room's terms: on a slide of this width, 12 points can be read from the last row.
    with rc_context({"font.size": 12}):
        return Figure(figsize=(width_inches, height_inches), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Writes PNG, SVG or PDF, as the name ends. Raises :class:`LadderError`."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise LadderError(
            f"{path} ends in none of .png, .svg, .pdf", "The ending says which kind is written."
        )
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise LadderError(f"cannot write {path}: {error.strerror}") from error
