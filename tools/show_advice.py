#!/usr/bin/env python3
"""Checks the untouched gap and each wrong answer of exercises, and keeps what the check says.

python -m tools.show_advice [EXERCISE ...]     # by default of all, which takes hours

The table is results/advice.json: by exercise and answer, whether it is solved, and the lines on a terminal.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from ladder.course.exercises import Exercise, check_gap, exercises, read_answers, verdict_lines

TABLE = Path(__file__).resolve().parents[1] / "results" / "advice.json"
UNTOUCHED = "untouched"
#: An address differs from run to run.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def answers(exercise: Exercise) -> Iterator[tuple[str, str]]:
    """The untouched gap and the wrong answers, each named by the thought behind it."""
    yield UNTOUCHED, exercise.gap.skeleton
    for one in read_answers(exercise).wrong:
        yield one.why, one.text


def shown(exercise: Exercise, text: str) -> dict[str, object]:
    """What the check shows of this answer on a terminal of 100 columns."""
    verdict = check_gap(exercise, text)
    terminal = io.StringIO()
    console = Console(width=100, color_system=None, file=terminal)
    for line in verdict_lines(verdict):
        console.print(line, highlight=False)
    lines = terminal.getvalue().splitlines()
    return {
        "solved": verdict.passed,
        "lines": [_ADDRESS.sub("0x...", line.rstrip()) for line in lines if line.strip()],
    }


def main(names: Sequence[str]) -> int:
    known = {one.name: one for one in exercises()}
    if unknown := [name for name in names if name not in known]:
        print(f"unknown: {', '.join(unknown)}. `ladder exercise list` has all names.", file=sys.stderr)
        return 2
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    solved = 0
    for name in names or known:
        table[name] = {why: shown(known[name], text) for why, text in answers(known[name])}
        solved += sum(bool(one["solved"]) for one in table[name].values())
        kept = {key: table[key] for key in sorted(table) if key in known}
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        TABLE.write_text(text + "\n", encoding="utf-8")
    print(f"{solved} wrong answers are solved", file=sys.stderr)
    return 1 if solved else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
