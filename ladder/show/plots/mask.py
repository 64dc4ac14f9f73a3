"""Masks of HSTU attention, and the tiles that they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.show.plots.figure import BLUE, INK, LIGHT, ORANGE, bare, new_figure

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

_COLUMNS = 4
_PALE = "#F5D6C2"
#: The classes that :func:`_classes` numbers, with their colours.
_KINDS = (
    ("tile that is skipped", LIGHT),
    ("tile that the mask cuts: not seen", _PALE),
    ("tile that the mask cuts: seen", ORANGE),
    ("tile that needs no mask", BLUE),
)


def mask_picture(masks: Mapping[str, Tensor], tile: tuple[int, int]) -> Figure:
    """Draws boolean masks (queries, keys) by title, with the tiles of size ``tile`` that they need."""
    from matplotlib.patches import Patch

    columns = min(_COLUMNS, len(masks))
    rows = -(-len(masks) // columns)
    figure = new_figure(max(7.5, 3.6 * columns), 3.9 * rows + 0.8)
    figure.get_layout_engine().set(h_pad=0.15)  # type: ignore[union-attr, call-arg]
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (title, mask) in zip(panels, masks.items(), strict=False):
        _draw(axes, title, mask.numpy(), tile)
    for axes in panels[len(masks) :]:
        axes.set_visible(False)
    handles = [Patch(color=colour, label=label) for label, colour in _KINDS]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=12, labelcolor=INK
    )
    return figure


def _draw(axes: Axes, title: str, mask: np.ndarray, tile: tuple[int, int]) -> None:
    from matplotlib.colors import ListedColormap

    classes, (needed, cut, tiles) = _classes(mask, tile)
    queries, keys = mask.shape
    bare(axes, keys, queries)
    colours = ListedColormap([colour for _, colour in _KINDS])
    axes.imshow(classes, cmap=colours, vmin=0, vmax=len(_KINDS) - 1, extent=(0, keys, queries, 0))
    axes.hlines(range(0, queries + 1, tile[0]), 0, keys, color="white", linewidth=2)
    axes.vlines(range(0, keys + 1, tile[1]), 0, queries, color="white", linewidth=2)
    axes.set_title(f"{title}\n{needed} of {tiles} tiles, {cut} masked", fontsize=13, color=INK)
    axes.set_xlabel("key", fontsize=12, color=INK)
    axes.set_ylabel("query", fontsize=12, color=INK)


def _classes(mask: np.ndarray, tile: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Returns each element's index in :data:`_KINDS`, and the numbers of needed, cut and all tiles."""
    import numpy as np

    classes = np.zeros(mask.shape, dtype=int)
    needed = cut = tiles = 0
    for row in range(0, mask.shape[0], tile[0]):
        for key in range(0, mask.shape[1], tile[1]):
            place = np.s_[row : row + tile[0], key : key + tile[1]]
            seen = mask[place]
            tiles += 1
            needed += int(seen.any())
            if seen.all():
                classes[place] = 3
            elif seen.any():
                classes[place] = 1 + seen
                cut += 1
    return classes, (needed, cut, tiles)
