"""The picture of one shared-memory access: where the lanes' data lies, and which lanes wait for which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.counts.banks import BANKS, ROW_BYTES, Cell, Pass, Service, lanes_text
from ladder.show.plots.figure import BLUE, GREY, INK, LIGHT, ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_INCHES = 13.5
_STRIP = 1.8  # rows that the strip of demands takes, with the gap below it


def access_picture(service: Service, title: str) -> Figure:
    """Draws each pass as a panel, 32 banks wide, with one row for every 128 bytes that it touches.

    A box is data requested by the lanes whose numbers it shows, drawn in the banks that hold it. Boxes served
    in the first wavefront are blue; those that wait for a busy bank are orange. The strip above shows the
    number of distinct words requested from each bank; its maximum is the number of wavefronts.
    """
    columns = 2 if len(service.passes) > 2 else 1
    lines = [service.passes[i : i + columns] for i in range(0, len(service.passes), columns)]
    most_rows = max((len(_rows(one)) for one in service.passes), default=0)
    row_inches = 0.34 if most_rows <= 16 else 0.25
    heights = [max(len(_rows(one)) for one in line) + _STRIP for line in lines]
    figure = new_figure(_WIDTH_INCHES, 1.5 + sum(rows * row_inches + 0.9 for rows in heights))
    if not lines:
        figure.suptitle(f"{title}\nno lane takes part", fontsize=17, color=INK)
        return figure
    conflicts = _count(service.conflicts, "bank conflict") if service.conflicts else "no bank conflict"
    passes = _count(len(service.passes), "pass", "passes")
    summary = f"{_count(service.wavefronts, 'wavefront')} in {passes}: {conflicts}"
    figure.suptitle(f"{title}\n{summary}", fontsize=17, color=INK)
    grid = figure.subplots(len(lines), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
    for number, axes in enumerate(grid.flat):
        if number < len(service.passes):
            _draw(axes, service, number, columns > 1)
        else:
            axes.axis("off")
    _legend(figure)
    return figure


def _draw(axes: Axes, service: Service, number: int, small: bool) -> None:
    one = service.passes[number]
    rows = _rows(one)
    size = 11 if small else 12
    by_address: dict[int, list[Cell]] = {}
    for cell in one.cells:
        by_address.setdefault(cell.address, []).append(cell)
    for address, cells in by_address.items():
        # Atomics on one word are serialised: their only box holds their number.
        cell = cells[0]
        text = f"×{len(cells)}" if len(cells) > 1 else _lanes(cell, small)
        waits = cell.wavefront > 0 or len(cells) > 1
        y = rows.index(address // ROW_BYTES)
        font = size if cell.banks > 1 else size - 2
        _box(axes, cell.first_bank, y, cell.banks, ORANGE if waits else BLUE, text, font, bold=True)
    demand = one.demand()
    for bank, wanted in enumerate(demand):
        colour = ORANGE if wanted > 1 else BLUE if wanted else LIGHT
        _box(axes, bank, -_STRIP, 1, colour, str(wanted) if wanted else "", size - 3 if small else size - 1)
    for bank in range(0, BANKS + 1, 4):
        axes.axvline(bank, color=GREY, linewidth=0.5, zorder=0)
    axes.set_xlim(0, BANKS)
    axes.set_ylim(len(rows), -_STRIP)
    axes.set_xticks([bank + 0.5 for bank in range(0, BANKS, 4 if small else 2)])
    axes.set_xticklabels([str(bank) for bank in range(0, BANKS, 4 if small else 2)])
    axes.xaxis.tick_top()
    step = 1 if len(rows) <= 16 else 2
    axes.set_yticks([0.5 - _STRIP, *(y + 0.5 for y in range(0, len(rows), step))])
    axes.set_yticklabels(["words", *(f"{rows[y] * ROW_BYTES:,}" for y in range(0, len(rows), step))])
    axes.tick_params(length=0, labelsize=size - 1, colors=INK)
    axes.annotate(
        "bank", (0, 1), xytext=(-8, 5), xycoords="axes fraction", textcoords="offset points",
        ha="right", va="bottom", fontsize=size - 1, color=INK,
    )  # fmt: skip
    for side in axes.spines.values():
        side.set_visible(False)
    waits_text = _count(one.wavefronts - 1, "conflict") if one.wavefronts > 1 else "no conflict"
    heading = f"lanes {lanes_text(one.lanes)}: {_count(one.wavefronts, 'wavefront')}, {waits_text}"
    if len(service.passes) > 1:
        heading = f"pass {number + 1}, {heading}"
    axes.set_title(heading, fontsize=size + 2, color=INK, pad=8, fontweight="bold")


def _box(
    axes: Axes, x: float, y: float, width: float, colour: str, text: str, size: float, bold: bool = False
) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, 1, facecolor=colour, edgecolor="white", linewidth=1.2))
    axes.text(
        x + width / 2, y + 0.52, text, ha="center", va="center", color="white",
        fontsize=size, fontweight="bold" if bold else "normal",
    )  # fmt: skip


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(color=BLUE, label="served in the first wavefront"),
        Patch(color=ORANGE, label="waits for its bank: a conflict"),
        Patch(color="none", label="in a box: lanes     on the left: byte address of each row of 128 bytes"),
        Patch(color="none", label="words: wanted from that bank"),
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=11, labelcolor=INK,
        columnspacing=1.2, handlelength=1.2, handletextpad=0.5,
    )  # fmt: skip


def _rows(one: Pass) -> list[int]:
    return sorted({cell.address // ROW_BYTES for cell in one.cells})


def _lanes(cell: Cell, small: bool) -> str:
    """The cell's lanes, abbreviated to fit the box."""
    text = lanes_text(cell.lanes)
    room = 2 + (cell.banks - 1) * (2 if small else 3)
    return text if len(text) <= room else f"{cell.lanes[0]}+"


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
