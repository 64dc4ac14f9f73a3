"""The table of bounds beside measured times, by rung."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from ladder.counts.time import bounded_rungs
from tools.measure.tables_of.data import ROOT, markdown

#: Launches whose clock is known.
_CLOCKED = "h200/bounds.csv"


def bounds_by_rung() -> str:
    """Each rung's bound as a share of the measured time, and the unit that bounds, by problem."""
    cells: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    shares: dict[str, list[float]] = defaultdict(list)
    for row, bound in bounded_rungs(ROOT / "results", _CLOCKED):
        if row.problem and row.clock_mhz:
            shares[row.contender].append(bound.ms / row.ms)
            key = (row.problem.q_len, row.problem.head_dim)
            cells[row.contender][key] = f"{bound.ms / row.ms:.2f} {bound.bounding.name}"
    keys = sorted({key for of_rung in cells.values() for key in of_rung})
    rows = [[f"`{rung}`", *(of_rung.get(key, "") for key in keys)] for rung, of_rung in cells.items()]
    middle = median(median(of_rung) for of_rung in shares.values())
    table = markdown(["rung", *(f"N = {n}, d = {d}" for n, d in keys)], rows)
    return f"{table}\nThe median over the rungs' medians is {middle:.2f}.\n"
