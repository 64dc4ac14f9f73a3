"""Exercises in the reader's language."""

from __future__ import annotations

import pytest

from ladder.exercises import exercises, get_exercise, worded
from ladder.exercises.wording import language


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


def test_words_are_translated_as_far_as_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    english = get_exercise("cuda_map")
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    shown = worded(english)
    assert shown.title != english.title and "线程" in shown.task
    assert shown.hints[-1] == english.hints[-1]  # code
    assert shown.sources(solved=True) != english.sources(solved=True)  # the goal beside the marker
    monkeypatch.setenv("LADDER_LANGUAGE", "en")
    assert worded(english) == english
    untranslated = [one for one in exercises() if not (one.folder / "zh-CN.toml").is_file()]
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    assert untranslated and worded(untranslated[0]) == untranslated[0]


def test_a_translation_has_all_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    assert [one.name for one in exercises() if len(worded(one).hints) != len(one.hints)] == []
