"""The counts of the exercises' solutions, beside which a student's are shown.

``exercises/counts.json`` has them; ``tools/count_solutions.py`` counts them again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder.stages import exercises_root

if TYPE_CHECKING:
    from ladder.course.exercises.definition import Exercise
    from ladder.course.exercises.verdict import Verdict


@dataclass(frozen=True)
class ReferenceCounts:
    """The counts of a solution that are not 0, on the problem or run with the largest ones."""

    on: str
    counts: Mapping[str, int]


def reference_counts(exercise: Exercise) -> ReferenceCounts | None:
    """The counts of the exercise's solution; None if they are not recorded."""
    found = read_counts(counts_file()).get(exercise.name)
    return None if found is None else ReferenceCounts(found["on"], found["counts"])


def recorded(verdict: Verdict) -> dict[str, Any]:
    """What is recorded of the verdict on a solution."""
    counts = {name: count for name, count in verdict.counts.items() if count}
    return {"on": verdict.counted_on, "counts": counts}


def counts_file() -> Path:
    return exercises_root() / "counts.json"


@functools.cache
def read_counts(path: Path) -> dict[str, dict[str, Any]]:
    """The recorded counts by the names of exercises; none if there is no file."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
