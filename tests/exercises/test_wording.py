"""Exercises in the reader's language."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ladder.exercises import Verdict, afterword_lines, exercises, get_exercise, worded
from ladder.exercises.wording import language

CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, ""),
        ({"LANG": "en_US.UTF-8"}, ""),
        ({"LANG": "zh_CN.UTF-8"}, "zh-CN"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, ""),
        ({"LANG": "C", "LADDER_LANGUAGE": "zh-CN"}, "zh-CN"),
    ],
)
def test_the_language_is_that_of_the_locale_or_the_one_chosen(
    environment: dict[str, str], expected: str
) -> None:
    assert language(environment) == expected


def test_words_are_translated_as_far_as_they_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    english = get_exercise("cuda_map")
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    shown = worded(english)
    assert shown.title != english.title and "线程" in shown.task
    assert shown.hints[-1] == english.hints[-1]  # code
    assert shown.sources(solved=True) != english.sources(solved=True)  # the goal beside the marker
    monkeypatch.setenv("LADDER_LANGUAGE", "en")
    assert worded(english) == english
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    monkeypatch.setattr("ladder.exercises.definition.exercises_root", lambda: tmp_path)
    assert worded(english) == english
    english.folder.mkdir()
    (english.folder / "zh-CN.toml").write_text('title = "映射"\n', encoding="utf-8")
    assert worded(english) == replace(english, title="映射")


def test_every_exercise_is_translated_with_all_its_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    for one in exercises():
        shown = worded(one)
        assert len(shown.hints) == len(one.hints), one.name
        for words in (shown.task, shown.afterword):
            assert CHINESE.search(words), f"{one.name}: {words}"


def test_the_explanation_is_wrapped_even_where_lines_are_not() -> None:
    exercise = get_exercise("cuda_map")
    verdict = Verdict(exercise)
    console = Console(width=60, file=io.StringIO(), record=True)
    for line in afterword_lines(verdict, ""):
        console.print(line, soft_wrap=True)
    said = console.export_text()
    assert " ".join(said.split()).count(exercise.afterword) == 1
    assert all(len(line.rstrip()) <= 60 for line in said.splitlines())
