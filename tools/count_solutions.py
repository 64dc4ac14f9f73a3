#!/usr/bin/env python3
"""Counts the solutions of exercises and records the counts in exercises/counts.json.

python tools/count_solutions.py [EXERCISE ...]     # by default of all
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from ladder.course.exercises import check_gap, exercises, solution_text
from ladder.course.exercises.reference_counts import counts_file, read_counts, recorded


def main(names: Sequence[str]) -> int:
    known = {one.name: one for one in exercises()}
    found = {name: entry for name, entry in read_counts(counts_file()).items() if name in known}
    refused = 0
    for name in names or known:
        verdict = check_gap(known[name], solution_text(known[name]))
        if verdict.passed:
            found[name] = recorded(verdict)
        else:
            refused += 1
            print(f"{name}: its solution is refused: {verdict.first_failing_case}", file=sys.stderr)
        lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
        counts_file().write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
