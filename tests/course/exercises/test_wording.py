"""Exercises in the reader's language."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ladder.common.wording import language, said
from ladder.course.exercises import Verdict, afterword_lines, get_exercise, printed, worded
from ladder.run.emulator import ADVICE, SENTENCES, retold

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


def test_words_are_translated_as_far_as_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    english = get_exercise("cuda_map")
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    shown = worded(english)
    assert shown.title != english.title and "线程" in shown.task
    assert shown.hints[-1] == english.hints[-1]  # code
    assert shown.sources(solved=True) != english.sources(solved=True)  # the goal beside the marker
    monkeypatch.setenv("LADDER_LANGUAGE", "en")
    assert worded(english) == english
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    new = replace(english, title="A title that nobody has translated")
    assert worded(new).title == new.title and worded(new).task == shown.task


def test_what_the_program_says_has_fields_and_a_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_LANGUAGE", "en")
    assert said("{n} of {count} solved", n=3, count=8) == "3 of 8 solved"
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    assert said("{n} of {count} solved", n=3, count=8) == "8 道中已完成 3 道"
    assert said("Nobody says {n} such things.", n=2) == "Nobody says 2 such things."


def test_what_the_emulator_says_is_translated_with_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = "reads 4 bytes of shared memory that another warp wrote, with no barrier in between"
    waits = "warps 0-3: lanes 0-31 at barrier 1 (kernel.cu:12)"
    monkeypatch.setenv("LADDER_LANGUAGE", "en")
    assert retold(raced) == raced
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    assert retold(raced) == "读取另一个 warp 写过的 4 字节的共享内存，中间没有屏障"
    assert retold(waits) == "warp 0-3：lane 0-31 在屏障 1 处等待（kernel.cu:12）"
    assert retold("an unknown fault") == "an unknown fault"
    for text in (*ADVICE.values(), *SENTENCES):
        assert retold(text) == said(text) and CHINESE.search(retold(text))


def test_what_programs_print_of_a_wrong_result_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every format of their main, with numbers for its fields."""
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")
    assert printed("y[3] is 1, should be 2\nmine\n") == "y[3] 是 1，应该是 2\nmine"
    seen = 0
    for source in Path(__file__).parents[3].glob("exercises/*/program.cu"):
        for found in re.findall(r'printf\(\s*((?:"[^"]*"\s*)+)', source.read_text(encoding="utf-8")):
            line = "".join(re.findall(r'"([^"]*)"', found)).removesuffix("\\n")
            if line not in ("right", "%s"):  # the latter is CUDA's own text
                shown = printed(re.sub(r"%[.\d]*\w", "7", line))
                assert CHINESE.search(shown) and "should" not in shown, line
                seen += 1
    assert seen > 30
    monkeypatch.setenv("LADDER_LANGUAGE", "en")
    assert printed("y[3] is 1, should be 2") == "y[3] is 1, should be 2"


def test_a_check_speaks_the_reader_s_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the task to the verdict: in Chinese but for code, names and options."""
    monkeypatch.setenv("LADDER_LANGUAGE", "zh-CN")

    def ladder(*arguments: str) -> str:
        command = [sys.executable, "-m", "ladder", "exercise", *arguments, "--folder", str(tmp_path / "work")]
        return subprocess.run(command, capture_output=True, text=True).stdout

    assert "写在这里：" in ladder("start", "v1_lse")
    checked = ladder("check", "v1_lse", "--json", str(tmp_path / "verdict.json"))
    assert "尚未通过 v1_lse" in checked and "它是 log(l)：缺少 m。" in checked and "卡住了？" in checked
    assert not re.search(r"wrong|right|should|missing", checked)
    assert json.loads((tmp_path / "verdict.json").read_text())[0]["state"] == "wrong"
    assert "提示 1" in ladder("hint", "v1_lse")


def test_the_explanation_is_wrapped_even_where_lines_are_not() -> None:
    exercise = get_exercise("cuda_map")
    verdict = Verdict(exercise)
    console = Console(width=60, file=io.StringIO(), record=True)
    for line in afterword_lines(verdict, ""):
        console.print(line, soft_wrap=True)
    said = console.export_text()
    assert " ".join(said.split()).count(exercise.afterword) == 1
    assert all(len(line.rstrip()) <= 60 for line in said.splitlines())
