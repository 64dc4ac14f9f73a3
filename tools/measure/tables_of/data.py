"""Rows of measurements, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from ladder.stages import discover, of_today

ROOT = Path(__file__).resolve().parents[3]
H200 = ROOT / "results" / "h200"
H100 = ROOT / "results" / "h100"


def measured_rows(name: str, folder: Path | None = None) -> pd.DataFrame:
    """A file of a GPU's folder, ``results/h200/`` by default, under the names that the rungs have today."""
    rows = pd.read_csv((folder or H200) / name)
    return of_today(rows, "contender" if "contender" in rows else "stage")


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The table. A cell that is a rung's name gets its number, so that renaming a rung changes no table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    numbers = {stage.name: stage.number for stage in discover()}

    def shown(cell: object) -> str:
        name = str(cell).strip("`")
        return str(cell).replace(name, numbers.get(name, name))

    return "\n".join("| " + " | ".join(map(shown, line)) + " |" for line in lines) + "\n"
