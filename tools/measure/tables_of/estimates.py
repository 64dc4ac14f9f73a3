"""How far the model of time is from measured times: results/estimate.csv."""

from __future__ import annotations

import csv

from ladder.stages import discover
from tools.measure.estimate_times import RESULTS, summary


def estimate_errors() -> str:
    """For each set of rungs, the errors; then the estimated time as a share of the measured one, by rung."""
    with (RESULTS / "estimate.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        lines.append(f"- {name}: {summary([row for row in rows if row['set'] == name])}")
    lines += ["", "| rung | estimated / measured |", "| --- | --- |"]
    for rung in dict.fromkeys(row["stage"] for row in rows):
        of_rung = [row["ratio"] or "none" for row in rows if row["stage"] == rung]
        lines.append(f"| {discover()[rung].number} | {', '.join(of_rung)} |")
    return "\n".join([*lines, ""])
