"""The comparison as one line per rung: what each step changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich import box
from rich.table import Table
from rich.text import Text

from ladder.run.evaluation import Comparison, Row
from ladder.show.render.measures import RIGHT, WRONG, comparison_title
from ladder.stages import Ladder

_WAVEFRONTS = ("wavefronts_ld", "wavefronts_st", "wavefronts_gmma")
_SECTORS = ("global_sectors_ld", "global_sectors_st", "tma_sectors_ld", "tma_sectors_st")
#: The library beside which a GPU's rungs are shown.
_PEER = "torch cuDNN"
#: Below the table: what the column "fewer" divides.
STORY_NOTE = "fewer: the wavefronts of the rung before, divided by this rung's"


def story_table(comparison: Comparison, ladder: Ladder) -> Table:
    """A table of at most 80 columns with one row per rung. Columns without a value are left out.

    A blank count is one that the backend does not have.
    """
    rows = {row["stage"]: row for row in comparison.rows}
    before = {stage.name: rows.get(stage.before or "") for stage in ladder}
    columns: dict[str, Callable[[Row], str]] = {
        "wavefronts": lambda row: _count(_sum(row, _WAVEFRONTS)),
        "fewer": lambda row: _times_fewer(row, before.get(row["stage"])),
        "conflicts": lambda row: _count(row["conflicts"]),
        "sectors": lambda row: _count(_sum(row, _SECTORS)),
        "products": _products,
        "TFLOP/s": lambda row: "" if row["tflops"] is None else f"{row['tflops']:.1f}",
        "x cuDNN": lambda row: _multiple_of_peer(row, comparison),
    }
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        title=Text(comparison_title(comparison, comparison.rows), no_wrap=True, overflow="ignore"),
        title_justify="left",
    )
    table.add_column("rung", no_wrap=True)
    table.add_column("right")
    cells = {heading: [cell(row) for row in comparison.rows] for heading, cell in columns.items()}
    shown = {heading: column for heading, column in cells.items() if any(column)}
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for number, row in enumerate(comparison.rows):
        verdict = Text(RIGHT, "green") if row["passed"] else Text(WRONG, "bold red")
        table.add_row(row["stage"], verdict, *(column[number] for column in shown.values()))
    return table


def verdict_line(comparison: Comparison) -> str:
    """How many of the rungs that take the problem are right, and the names of the others."""
    names = {
        "wrong": [row["stage"] for row in comparison.rows if not row["passed"]],
        "no result": [*comparison.failed],
    }
    total = len({row["stage"] for row in comparison.rows} | set(comparison.failed))
    right = total - len({name for found in names.values() for name in found})
    others = [f"{kind}: {', '.join(found)}" for kind, found in names.items() if found]
    return "; ".join([f"{right} of {total} right", *others])


def _sum(row: Row, names: tuple[str, ...]) -> int | None:
    """The sum of these counts; None if one of them is unknown."""
    counts = [row[name] for name in names]
    return None if None in counts else sum(counts)


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _times_fewer(row: Row, before: Row | None) -> str:
    now, then = _sum(row, _WAVEFRONTS), None if before is None else _sum(before, _WAVEFRONTS)
    if not now or not then:
        return ""
    times = then / now
    return f"{times:.1f}x" if times < 10 else f"{times:,.0f}x"


def _products(row: Row) -> str:
    """The instructions that multiply: mma or wgmma."""
    kinds = {"mma": row["mma_instructions"], "wgmma": row["wgmma_instructions"]}
    return " ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)


def _multiple_of_peer(row: Row, comparison: Comparison) -> str:
    speeds: Mapping[str, float] = comparison.baselines.get(row["dtype"], {})
    if row["tflops"] is None or _PEER not in speeds:
        return ""
    return f"{row['tflops'] / speeds[_PEER]:.2f}"
