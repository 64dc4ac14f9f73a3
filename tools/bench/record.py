"""The outcomes of mutants as a file: a row for each. A run replaces those of its rungs."""

from __future__ import annotations

import datetime
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ladder.common import files
from ladder.compile import toolchain
from tools.bench.operators import Mutant

#: What becomes of a mutant that no judge can or need find.
NO_CODE, SAME_CODE, EQUIVALENT, SURVIVES = "does not build", "same code", "equivalent", "not found"


@dataclass(frozen=True)
class Outcome:
    """Which judges found the mutant, up to the first that did; empty if it does not build, or if its code is
    that of its rung: ``is_same``.
    """

    mutant: Mutant
    killed: dict[str, bool]
    #: How judges' processes ended before they answered, by judge; such a mutant counts as found.
    ends: dict[str, str] = field(default_factory=dict)
    is_same: bool = False

    @property
    def is_found(self) -> bool:
        return any(self.killed.values())


def save(path: Path, outcomes: Sequence[Outcome], equivalent: Container[str]) -> None:
    """Writes a row per mutant: what became of it, else the judge that found it; and after which judges, with
    which compiler and when. Rows of other rungs stay.

    Raises :class:`LadderError` if the file cannot be written.
    """
    nvcc = toolchain.pinned_nvcc()
    made = {"compiler": f"nvcc {nvcc.version}", "date": datetime.date.today().isoformat()}
    rows = [
        {
            "stage": outcome.mutant.stage,
            "mutant": outcome.mutant.name,
            "file": outcome.mutant.file,
            "kind": outcome.mutant.kind,
            "outcome": result(outcome, equivalent),
            "judges": " ".join(outcome.killed),
            **made,
        }
        for outcome in outcomes
    ]
    frame = pd.DataFrame(rows)
    if path.exists():
        known = pd.read_csv(path, keep_default_na=False)
        frame = pd.concat([known[~known.stage.isin(frame.stage)], frame])
    files.write(path, frame.sort_values(["stage", "mutant"]).to_csv(index=False).encode())


def result(outcome: Outcome, equivalent: Container[str]) -> str:
    """One of the constants above, or the judge that found the mutant."""
    if outcome.is_same:
        return SAME_CODE
    if not outcome.killed:
        return NO_CODE
    found_by = next((judge for judge, found in outcome.killed.items() if found), None)
    return found_by or (EQUIVALENT if outcome.mutant.name in equivalent else SURVIVES)
