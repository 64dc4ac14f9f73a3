#!/usr/bin/env python3
"""Checks the untouched gap and each wrong answer of exercises, keeps what the check says, and judges it.

python -m tools.show_advice [EXERCISE ...]           # by default of all, which takes an hour
python -m tools.show_advice --again [EXERCISE ...]   # after a change to the emulator or the judge
python -m tools.show_advice --kept [EXERCISE ...]    # after a change to the advice: checks nothing

The table is results/advice.json: by exercise and answer, the judgement and the lines on a terminal.
Judgements follow tools/expected_advice.toml. Verdicts are kept in build/advice by the sources that they are
about, so only changed answers are checked; --again checks all. The lines are made anew each time.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ladder.common import cache
from ladder.course.exercises import Exercise, Verdict, check_gap, exercises, read_answers, verdict_lines
from ladder.course.exercises.markers import known_sources

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "results" / "advice.json"
EXPECTED = Path(__file__).with_name("expected_advice.toml")
KEPT = ROOT / "build" / "advice"
UNTOUCHED = "untouched"
#: What a check shows, its name and the problems included, must fit so many lines of so many columns.
MOST_LINES, COLUMNS = 12, 100
#: An address differs from run to run.
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def answers(exercise: Exercise) -> Iterator[tuple[str, str]]:
    """The untouched gap and the wrong answers, each named by the thought behind it."""
    yield UNTOUCHED, exercise.gap.skeleton
    for one in read_answers(exercise).wrong:
        yield one.why, one.text


def kept_verdict(exercise: Exercise, text: str) -> Verdict | None:
    """The verdict on this answer with these sources, if it is kept."""
    path = _path(exercise, text)
    return pickle.loads(path.read_bytes()) if path.is_file() else None


def new_verdict(exercise: Exercise, text: str) -> Verdict:
    """Checks this answer, and keeps the verdict."""
    verdict, path = check_gap(exercise, text), _path(exercise, text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(verdict))
    return verdict


def _path(exercise: Exercise, text: str) -> Path:
    sources = sorted(known_sources(exercise).items())
    return KEPT / f"{exercise.name}-{cache.digest([repr(exercise), text, repr(sources)])}.pickle"


def shown(verdict: Verdict) -> list[str]:
    """The lines that a check with this verdict shows on a terminal, without blank ones."""
    terminal = io.StringIO()
    console = Console(width=COLUMNS, color_system=None, file=terminal)
    for line in verdict_lines(verdict):
        console.print(line, highlight=False)
    return [_ADDRESS.sub("0x...", line.rstrip()) for line in terminal.getvalue().splitlines() if line.strip()]


@functools.cache
def expected() -> dict[str, dict[str, str]]:
    """The expectations by exercise and answer; and the rules, as "rules"."""
    return tomllib.loads(EXPECTED.read_text(encoding="utf-8"))


def judged(exercise: str, why: str, lines: Sequence[str]) -> str:
    """What the lines are: "helpful", "vague: PART" without a part of the expectation, "misleading: PART" with
    a part that must not be there, "long" or "solved".
    """
    text = " ".join(" ".join(lines).split())
    if text.startswith("solved"):
        return "solved"
    faults = list(_faults(expected()[exercise][why], text))
    misleading = [one for one in faults if one.startswith("misleading")]
    if misleading or faults:
        return (misleading or faults)[0]
    return "long" if len(lines) > MOST_LINES else "helpful"


def _faults(expectation: str, text: str) -> Iterator[str]:
    """What is wrong with a text by an expectation."""
    for part in expectation.split(";"):
        if (words := part.strip()).startswith("-"):
            if re.search(words[1:], text):
                yield f"misleading: {words[1:]}"
            continue
        found = [_faults_of_one(one.strip(), text) for one in words.split(" or ")]
        if all(found):
            everything = [fault for faults in found for fault in faults]
            yield next((one for one in everything if one.startswith("misleading")), f"vague: {words}")


def _faults_of_one(words: str, text: str) -> list[str]:
    """What is wrong by a rule, or by words that the text must hold."""
    rules = expected()["rules"]
    if words in rules:
        return list(_faults(rules[words], text))
    return [] if re.search(words, text) else [f"vague: {words}"]


def summary(table: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each family of exercises: how many answers are judged how, and the longest advice."""
    families: dict[str, list[Any]] = defaultdict(list)
    for name, rows in table.items():
        families["cuda" if name.startswith("cuda_") else name[0]] += rows.values()
    for family, answers_of in sorted(families.items()):
        counts = Counter(row["judged"].partition(":")[0] for row in answers_of)
        longest = max(len(row["lines"]) for row in answers_of)
        found = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
        yield f"{family}: {len(answers_of)} answers, {found}; the longest has {longest} lines"


def rows_of(exercise: Exercise, mode: str) -> dict[str, dict[str, Any]]:
    """The table's rows of an exercise. ``mode`` is "--again", "--kept" or ""."""
    rows = {}
    for why, text in answers(exercise):
        verdict = None if mode == "--again" else kept_verdict(exercise, text)
        if verdict is None and mode != "--kept":
            verdict = new_verdict(exercise, text)
        if verdict is not None:
            lines = shown(verdict)
            rows[why] = {"judged": judged(exercise.name, why, lines), "lines": lines}
    return rows


def main(arguments: Sequence[str]) -> int:
    mode = next((one for one in arguments if one in ("--again", "--kept")), "")
    names = [one for one in arguments if one != mode]
    known = {one.name: one for one in exercises()}
    if unknown := [name for name in names if name not in known]:
        print(f"unknown: {', '.join(unknown)}. `ladder exercise list` has all names.", file=sys.stderr)
        return 2
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    for name in names or known:
        if rows := rows_of(known[name], mode):
            table[name] = rows
        table = {key: table[key] for key in sorted(table) if key in known}
        TABLE.write_text(json.dumps(table, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print("\n".join(summary(table)))
    return 0 if all(row["judged"] == "helpful" for rows in table.values() for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
