"""What a student may hand in by mistake: each says what was expected; and a right file without its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.cli import main
from ladder.course.classroom import grade_class
from ladder.course.classroom.grading import UNSOLVED
from ladder.course.exercises import get_exercise

PROGRAM, RUNG = "cuda_map", "v1_lse"


@pytest.fixture
def ann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the one student of a class, in a working directory of one's own."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "class" / "ann"
    folder.mkdir(parents=True)
    return folder


def solved(name: str) -> str:
    exercise = get_exercise(name)
    return exercise.sources(solved=True)[exercise.main_file]


@pytest.mark.parametrize("place", [".", PROGRAM, f"my_exercises/{PROGRAM}"])
def test_a_program_is_graded_with_and_without_its_folders(ann: Path, place: str) -> None:
    (ann / place).mkdir(parents=True, exist_ok=True)
    (ann / place / "program.cu").write_text(solved(PROGRAM))
    grades = grade_class(ann.parent)
    assert grades.by["ann", PROGRAM].state == "solved" and grades.refused == []


def test_a_lone_kernel_is_graded_without_the_files_that_belong_to_it(ann: Path) -> None:
    """The working copy includes others/NAME.h, the lines of other exercises."""
    assert main(["exercise", "start", RUNG]) == 0
    text = Path("my_exercises", RUNG, "kernel.cu").read_text()
    assert "others/" in text
    (ann / "kernel.cu").write_text(text)
    grades = grade_class(ann.parent)
    assert grades.by["ann", RUNG].case == "B=1 H=2 N=40 M=50 d=32: wrong output" and grades.refused == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("homework.zip", b"PK\3\4", "but homework.zip. Unpack the archive in this folder."),
        ("report.pdf", b"%PDF", "but report.pdf. Expected are folders such as cuda_map with program.cu"),
        (
            "kernel.cu",
            b"__global__ void mine() {}",
            "kernel.cu has no line // begin exercise: ... of an exercise",
        ),
        ("program.cu", b"", "program.cu has no line // begin exercise"),
    ],
)
def test_what_is_no_exercise_says_what_was_expected(ann: Path, name: str, content: bytes, said: str) -> None:
    (ann / name).write_bytes(content)
    [text] = grade_class(ann.parent).refused
    assert text.startswith("ann") and said in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "program.cu is missing or empty"),
        (b"\x7fELF\0\0", "program.cu is not text"),
        (
            solved("cuda_vector_add").encode(),
            "program.cu belongs to cuda_vector_add. Hand in the file of cuda_map",
        ),
    ],
)
def test_another_file_in_an_exercise_s_folder_says_what_was_expected(
    ann: Path, content: bytes, said: str
) -> None:
    (ann / PROGRAM).mkdir()
    (ann / PROGRAM / "program.cu").write_bytes(content)
    grade = grade_class(ann.parent).by["ann", PROGRAM]
    assert (grade.state, grade.case) == (UNSOLVED, "another file than the exercise's")
    assert said in grade.text


def test_a_folder_without_the_file_says_what_was_expected(ann: Path) -> None:
    (ann / PROGRAM).mkdir()
    (ann / PROGRAM / "kernel.cu").write_text("int x;")
    assert "program.cu is missing or empty" in grade_class(ann.parent).by["ann", PROGRAM].text
