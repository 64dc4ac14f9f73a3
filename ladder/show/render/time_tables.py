"""Renders the bound of a kernel's time: unit by unit, and the source lines that owe the most to it."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from ladder.errors import LadderError
from ladder.show.render.tables import plain_table

if TYPE_CHECKING:
    from ladder.counts.time import Bound, Estimate, Gpu, UnitTime

_BAR = 20


def bound_table(bound: Bound, title: str) -> Table:
    """One row per unit, the slowest first, which bounds the kernel: its work, its rate, its least time."""
    table = plain_table(
        f"{title}\nat least {time_text(bound.ms)} on {bound.gpu.name} at {bound.clock_mhz:,.0f} MHz, "
        f"by {bound.bounding.name}"
    )
    table.add_column("unit", no_wrap=True)
    for heading in ("work", "per clock, SM", "at least"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("of the bound", no_wrap=True)
    for one in sorted(bound.units, key=lambda unit: -unit.ms):
        share = one.ms / bound.ms if bound.ms else 0.0
        bar = "█" * round(share * _BAR) + f" {share:.0%}"
        style = "bold" if one.unit == bound.bounding else ""
        cells = (one.unit.name, f"{one.amount:.4g} {one.unit.counted}", rates_text(bound, one))
        table.add_row(*(Text(cell, style) for cell in (*cells, time_text(one.ms), bar)))
    return table


def bounds_table_of_rungs(bounds: Mapping[str, Bound | LadderError], gpu: Gpu) -> Table:
    """One row per rung: its least time and the unit that bounds, or why it has none."""
    table = plain_table(f"The least time on {gpu.name} at {gpu.clock_mhz:,.0f} MHz")
    table.add_column("rung", no_wrap=True)
    table.add_column("at least", justify="right", no_wrap=True)
    table.add_column("bounded by")
    for name, bound in bounds.items():
        if isinstance(bound, LadderError):
            table.add_row(name, "", Text(bound.message, "dim"))
        else:
            table.add_row(name, time_text(bound.ms), bound.bounding.name)
    return table


def bounding_lines_table(bound: Bound, count: int) -> Table:
    """The kernel lines with the largest shares of the work of the unit that bounds."""
    table = plain_table(f"Lines by their share of the work of {bound.bounding.name}")
    table.add_column("share", justify="right")
    table.add_column("line", no_wrap=True)
    table.add_column("source", no_wrap=True, overflow="ellipsis")
    for (file, line), share in islice(bound.shares().items(), count):
        source = linecache.getline(file, line).strip()
        table.add_row(f"{share:.1%}", f"{Path(file).name}:{line}", Text(source))
    return table


def estimate_table(estimate: Estimate, title: str, count: int) -> Table:
    """The estimated time with its interval, what warps spend it on, and the lines that wait the longest."""
    low, high = estimate.interval_ms
    table = plain_table(
        f"{title}\nestimated {time_text(estimate.ms)} on {estimate.gpu.name} "
        f"at {estimate.clock_mhz:,.0f} MHz (from {time_text(low)} to {time_text(high)})"
    )
    table.add_column("of the warps' time", justify="right")
    table.add_column("reason, as Nsight Compute names it", no_wrap=True)
    table.add_column("line", no_wrap=True)
    table.add_column("source", no_wrap=True, overflow="ellipsis")
    for reason, share in estimate.reasons().items():
        if share >= 0.005:
            table.add_row(f"{share:.0%}", Text(reason, "bold"))
    for ((file, line), reason), share in islice(estimate.lines().items(), count):
        source = linecache.getline(file, line).strip()
        table.add_row(f"{share:.1%}", reason, f"{Path(file).name}:{line}", Text(source))
    return table


def estimate_rows(estimate: Estimate, what: str) -> list[dict[str, Any]]:
    """One row per launch, for JSON."""
    low, high = estimate.interval_ms
    return [
        {
            "what": what,
            "gpu": estimate.gpu.name,
            "clock_mhz": estimate.clock_mhz,
            "kernel": one.kernel,
            "cycles": one.cycles,
            "blocks_per_multiprocessor": one.resident,
            "registers": one.registers,
            "reasons": estimate.reasons(),
            "ms": estimate.ms,
            "from_ms": low,
            "to_ms": high,
        }
        for one in estimate.launches
    ]


def bound_rows(bound: Bound, what: str) -> list[dict[str, Any]]:
    """One row per unit, for JSON."""
    return [
        {
            "what": what,
            "gpu": bound.gpu.name,
            "clock_mhz": bound.clock_mhz,
            "unit": one.unit.name,
            "counted": one.unit.counted,
            "amounts": dict(one.amounts),
            "ms": one.ms,
            "bounds": one.unit == bound.bounding,
            "bound_ms": bound.ms,
        }
        for one in bound.units
    ]


def rates_text(bound: Bound, one: UnitTime) -> str:
    """The unit's rates for its kinds of work."""
    if one.unit.name == "DRAM":
        return f"{bound.gpu.dram_gb_per_s:,.0f} GB/s"
    rates = {kind: bound.gpu.rate(kind) for kind in one.amounts}
    shown = dict.fromkeys(f"{rate.per_clock:,.0f}" if rate else "no rate" for rate in rates.values())
    return " / ".join(shown)


def time_text(ms: float) -> str:
    return f"{ms:,.3f} ms" if ms >= 0.1 else f"{ms * 1e3:,.3g} us"
