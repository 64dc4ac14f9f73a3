"""Exercises in a headless Chromium: what they count, find and judge is what the native emulator does."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from live_page import assert_same_counts, comparable, edit, open_page, press, text_of

from ladder.compile import DebugTarget, EmulatorTarget, build_program
from ladder.course.exercises import (
    Exercise,
    exercises,
    fill_gap,
    get_exercise,
    read_answers,
    solution_text,
    write_working_copy,
)
from ladder.stages import read_stage
from tools.pages import live_exercises, live_pages, live_recording


def _exercises() -> list[Any]:
    offered = live_exercises.offered_exercises(live_pages.OFFERED)
    return [pytest.param(one, id=one.name) for one in offered]


def _choose(browser: Browser, answer: int) -> None:
    browser.value(f"document.querySelectorAll('#answers input')[{answer}].click(); 0")


@pytest.mark.full
def test_the_list_names_all_exercises(browser: Browser, address: str) -> None:
    browser.open(f"{address}/exercises.html")
    browser.wait_for("document.querySelectorAll('table.list tr').length")
    links = browser.value("[...document.querySelectorAll('table.list a')].map((one) => one.textContent)")
    others = browser.value("[...document.querySelectorAll('li code')].map((one) => one.textContent)")
    assert sorted([*links, *" ".join(others).split()]) == sorted(one.name for one in exercises())
    assert links == [one.values[0].name for one in _exercises()]


@pytest.mark.full
@pytest.mark.parametrize("exercise", _exercises())
def test_an_exercise_is_solved_by_its_right_answers_alone(
    browser: Browser, address: str, exercise: Exercise
) -> None:
    known = read_answers(exercise)
    solution = solution_text(exercise).strip("\n")
    right = {solution, *(one.text.strip("\n") for one in known.right)}
    wrong = {one.text.strip("\n") for one in known.wrong}
    open_page(browser, address, f"exercise_{exercise.name}")
    shown = browser.value("[...document.querySelectorAll('#answers label')].map((one) => one.textContent)")
    assert shown[0] == exercise.gap.skeleton.strip("\n") and set(shown[1:]) == right | wrong
    source = "[...document.querySelectorAll('#lines td.code')].map((one) => one.textContent).join('\\n')"
    assert browser.value(source) == exercise.sources(solved=False)[exercise.main_file].rstrip("\n")
    judged = {}
    for number, text in enumerate(shown):
        _choose(browser, number)
        is_right = press(browser, "answer")["is_right"]
        verdict = text_of(browser, "verdict")
        assert verdict.startswith("Right." if is_right else "Not right:"), verdict
        judged[text] = is_right
    # A starting point may be an answer that is right, and dearer than its exercise wants.
    assert {text for text, is_right in judged.items() if is_right} == right - {shown[0]}


@pytest.mark.full
@pytest.mark.parametrize("exercise", _exercises())
def test_counts_and_findings_of_an_exercise_equal_the_native_ones(
    browser: Browser, address: str, exercise: Exercise, tmp_path: Path
) -> None:
    """Of its starting point and of a right answer, each built by itself; they run under the sanitizer."""
    open_page(browser, address, f"exercise_{exercise.name}")
    shown = browser.value("[...document.querySelectorAll('#answers label')].map((one) => one.textContent)")
    for text in (exercise.gap.skeleton.strip("\n"), solution_text(exercise).strip("\n")):
        _choose(browser, shown.index(text))
        log = press(browser, "run", check=True)["log"]
        native = _native_answer(exercise, text, tmp_path / f"answer_{shown.index(text)}")
        assert_same_counts(log["kernels"], native)
        # Outputs that are never written are found in the order of their addresses, which differ.
        own, wanted = (
            sorted(comparable(found), key=str) for found in (log["findings"], json.loads(native.findings))
        )
        assert own == wanted


def _native_answer(exercise: Exercise, text: str, folder: Path) -> Any:
    """The run of an answer on the page's first problem, natively."""
    recording, target = live_recording, EmulatorTarget(exercise.arch)
    folder.mkdir()
    write_working_copy(exercise, folder, solved=False)
    fill_gap(exercise, folder, text)
    if exercise.rung is not None:
        problems = live_exercises.cases_of(exercise)
        stage = read_stage(folder).narrowed(problems)
        return recording.record_run(stage, target, problems[0], check=True, may_fail=True)
    program = build_program([folder / exercise.main_file], DebugTarget(exercise.arch, lines_only=True))
    library = ctypes.CDLL(str(program))
    words = [b"program", *(one.encode() for one in exercise.runs[0].arguments)]

    def called() -> int:
        return int(library.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None)))

    ctypes.CDLL(None).srand(1)
    run, _ = recording.record_program(called, check=True)
    return run


@pytest.mark.full
def test_the_exercise_is_solved_in_the_editor(browser: Browser, compiling: str) -> None:
    exercise = get_exercise("v1_rescale")
    open_page(browser, compiling, f"exercise_{exercise.name}")
    source = browser.value("document.getElementById('source').value")
    assert solution_text(exercise).strip() not in source
    browser.value("[...document.querySelectorAll('#answers input')].at(-1).checked = true; 0")
    assert press(browser, "answer")["is_right"] is False
    edit(browser, exercise.gap.skeleton.strip(), "float l_old = exp(m_old - m_new) * l_gmem[row];")
    assert press(browser, "answer")["is_right"] is True
    assert text_of(browser, "verdict").startswith("Right.")


@pytest.mark.full
def test_a_program_is_edited(browser: Browser, compiling: str) -> None:
    """Its outputs are compared with the solution's, since its main does not run."""
    open_page(browser, compiling, "exercise_cuda_vector_add")
    exercise = get_exercise("cuda_vector_add")
    browser.value("[...document.querySelectorAll('#answers input')].at(-1).checked = true; 0")
    answer = press(browser, "answer")
    assert answer["is_right"] is False and "an element of c is NaN" in answer["said"]
    lines = browser.value("document.getElementById('source').value").splitlines()
    begin, end = (
        next(at for at, text in enumerate(lines) if word in text) for word in ("// begin", "// end")
    )
    lines[begin + 1 : end] = solution_text(exercise).splitlines()
    solved = "\n".join(lines)
    browser.value(f"document.getElementById('source').value = {json.dumps(solved)}; 0")
    assert press(browser, "answer")["is_right"] is True
    moments = press(browser, "step")["moments"]
    assert moments[0]["in_source"] and moments[0]["file"] == "program.cu"
    assert any("i" in one["differing"] for one in moments)
