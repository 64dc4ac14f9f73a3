"""Predictions: a hint after the first miss, the reason and the number after the second."""

from __future__ import annotations

import re

import pytest

from ladder.common.wording import said
from ladder.course import lessons
from ladder.course.lessons import predictions
from ladder.course.lessons.listing import LessonError
from ladder.course.lessons.questions import QUESTIONS, Question


@pytest.fixture(autouse=True)
def one_question(monkeypatch) -> None:
    monkeypatch.setitem(
        QUESTIONS, "banks", Question("Count them.", "There are as many as lanes.", lambda: 32)
    )
    monkeypatch.setattr(predictions, "_answers", {})


def test_nothing_is_said_before_there_is_an_answer() -> None:
    asked = lessons.predict("banks", None)
    assert asked.right is None and "32" not in str(asked) and "Count" not in str(asked)
    assert "Predict first" in str(lessons.after("banks", lambda: "a picture"))


def test_right_at_once() -> None:
    found = lessons.predict("banks", 32)
    assert found.right is True and str(found) == "**Right: 32.** There are as many as lanes."
    assert lessons.after("banks", lambda: "a picture") == "a picture"


def test_a_miss_is_given_a_hint_and_another_one_the_answer() -> None:
    first = lessons.predict("banks", 16)
    assert first.right is False and "Count them." in str(first) and "32" not in str(first)
    # Running the same cell again is not a second try.
    assert lessons.predict("banks", 16) == first
    assert "Predict first" in str(lessons.after("banks", lambda: "a picture"))
    second = lessons.predict("banks", 31)
    assert str(second) == "**Not 31: it is 32.** There are as many as lanes."
    assert lessons.after("banks", lambda: "a picture") == "a picture"
    assert lessons.predict("banks", 32).right is True


@pytest.mark.parametrize("nonsense", [True, "32"])
def test_what_is_no_number(nonsense: object) -> None:
    found = lessons.predict("banks", nonsense)  # type: ignore[arg-type]
    assert found.right is False and "is no number" in str(found)
    assert lessons.predict("banks", 16) == lessons.predict("banks", 16)
    assert "Count them." in str(lessons.predict("banks", 16))


def test_a_question_that_is_not_there() -> None:
    with pytest.raises(LessonError, match="no question 'bank'"):
        lessons.predict("bank", 1)


def test_verdicts_are_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    untranslated = {
        name
        for name, question in QUESTIONS.items()
        if said(question.hint) == question.hint or said(question.because) == question.because
    }
    assert untranslated == {"banks"}
    for words in predictions.WORDS:
        assert said(words) != words
        assert sorted(re.findall(r"{.*?}", said(words))) == sorted(re.findall(r"{.*?}", words))
    assert str(lessons.predict("banks", 16)) == "**不是 16。** Count them.再试一次。"
    assert str(lessons.predict("banks", 31)) == "**不是 31，而是 32。** There are as many as lanes."
    assert str(lessons.predict("banks", 32)) == "**对：32。** There are as many as lanes."


#: Answers that follow from the lesson's text, to compare with the measured ones.
_KNOWN = {
    "every_second_word": 1,
    "column": 31,
    "q_row": 31,
    "k_smem": 0,
    "ldmatrix_of_k": 28,
    "wrong_swizzle": 4,
    "wavefronts_of_v3": 9 * 5 * (24 * 4 * 4 + 2 * 6144 // 128),
    "places_that_differ": 0,
    "stores_of_v4": 3 * 5 * 2 * 6144 // 512,
    "barriers_of_v5": 20,
    "shuffles_of_v5": 8,
    "blocks_of_v1b": 9,
    "sectors_written": 3 * 192 * 64 + 3 * 192 // 8,
    "mma_of_v3": 4 * 3 * 192 * (5 * 48) * 64 // 4096,
    "wgmma_a_tile": 12,
    "tma_loads": 3 * 7,
    "clocks_of_products": 640,
    "items_of_a_block": 11,
    "time_shortest_first": 12,
    "registers_of_gradients": 256,
    "sum_of_three": 0,
    "conflicts_of_a_tree": 3 * (2 * 1 + 4 * 3 + 1),
    "blocks_without_queries": 6,
    "consumers_that_multiply": 2,
    "tiles_with_targets": 8 * 9 // 2 + 8 * 8 + 8,
}


@pytest.mark.parametrize("name", _KNOWN)
def test_answers(name: str) -> None:
    assert QUESTIONS[name].measure() == _KNOWN[name]
