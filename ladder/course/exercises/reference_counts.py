"""The counts of the exercises' solutions, beside which a student's are shown.

``exercises/counts.json`` has them; ``python -m ladder.course.exercises.reference_counts`` counts them again.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.common import files
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
    found = _read(_path()).get(exercise.name)
    return None if found is None else ReferenceCounts(found["on"], found["counts"])


def recorded(verdict: Verdict) -> dict[str, object]:
    """What is recorded of the verdict on a solution."""
    counts = {name: count for name, count in verdict.counts.items() if count}
    return {"on": verdict.counted_on, "counts": counts}


def _path() -> Path:
    return exercises_root() / "counts.json"


@functools.cache
def _read(path: Path) -> dict[str, dict[str, dict[str, int]]]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def main(names: Sequence[str]) -> int:
    """Counts the solutions of these exercises, by default of all, and records them."""
    from ladder.course.exercises.checking import check_gap
    from ladder.course.exercises.markers import solution_text
    from ladder.course.exercises.reading import exercises

    known = {one.name: one for one in exercises()}
    found = {name: entry for name, entry in _read(_path()).items() if name in known}
    for name in names or known:
        verdict = check_gap(known[name], solution_text(known[name]))
        if verdict.passed:
            found[name] = recorded(verdict)  # type: ignore[assignment]
        else:
            print(f"{name}: the solution is refused: {verdict.first_failing_case}", file=sys.stderr)
        lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
        files.write(_path(), ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
