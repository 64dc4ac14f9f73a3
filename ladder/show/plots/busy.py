"""How busy each unit of the GPU is in each rung."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.show.plots.figure import INK, ink_on, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def busy_picture(panels: Mapping[str, pd.DataFrame], title: str) -> Figure:
    """Draws a panel for each table: rungs as rows, units as columns, the share of time in percent as number
    and shade.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    rows = max(len(table) for table in panels.values())
    figure = new_figure(13, 1.3 + 0.42 * rows)
    for axes, (heading, table) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        axes.imshow(table.to_numpy(dtype=float), cmap="Blues", vmin=0, vmax=100, aspect="auto")
        for row, shares in enumerate(table.to_numpy(dtype=float)):
            for column, share in enumerate(shares):
                shade = to_hex(colormaps["Blues"](share / 100))
                axes.text(
                    column, row, f"{share:.0f}", ha="center", va="center", fontsize=12, color=ink_on(shade)
                )
        axes.set_xticks(range(len(table.columns)), [name.replace(" ", "\n") for name in table.columns])
        axes.set_yticks(range(len(table)), table.index)
        axes.xaxis.tick_top()
        axes.tick_params(length=0, labelsize=11.5, colors=INK)
        axes.spines[:].set_visible(False)
        axes.set_title(heading, fontsize=15, color=INK, fontweight="bold", pad=8)
    figure.suptitle(title, fontsize=13, color=INK)
    return figure
