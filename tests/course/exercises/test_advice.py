"""The advice on an answer names its fault, and does not lead away from it. advice.toml has the answers."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from exercise_cost import is_quick
from rich.console import Console

from ladder.course.exercises import Exercise, check_gap, get_exercise, read_answers, verdict_lines

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("advice.toml").read_text())["answer"]


def text_of(exercise: Exercise, answer: str) -> str:
    if answer == "untouched":
        return exercise.gap.skeleton
    return next(one.text for one in read_answers(exercise).wrong if one.why == answer)


def shown(exercise: Exercise, answer: str) -> str:
    """What the check of the answer shows, with its lines joined."""
    console = Console(width=80, color_system=None, file=io.StringIO())
    for line in verdict_lines(check_gap(exercise, text_of(exercise, answer))):
        console.print(line, highlight=False)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


ROWS = [
    pytest.param(
        row,
        id=f"{row['exercise']}-{row['answer']}",
        marks=[] if is_quick(get_exercise(row["exercise"])) else [pytest.mark.full],
    )
    for row in TABLE
]


@pytest.mark.parametrize("row", ROWS)
def test_the_advice_names_the_fault(row: dict[str, Any]) -> None:
    text = shown(get_exercise(row["exercise"]), row["answer"])
    assert text.startswith(f"not yet {row['exercise']}")
    assert [words for words in row["names"] if words not in text] == [], text
    assert [words for words in row["never"] if words in text] == [], text


def test_an_access_is_shown_before_the_numbers_that_it_made_wrong() -> None:
    text = shown(get_exercise("cuda_scan"), "untouched")
    assert 0 <= text.index("race between warps") < text.index("should be")
