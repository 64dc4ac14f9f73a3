"""``ladder class grade``: what is handed in is judged once, and what cannot be is named."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ladder.cli import main
from ladder.course.classroom import SubmissionError, grade_class, submissions
from ladder.course.classroom import grading as grading_module
from ladder.course.exercises import Workspace, fill_gap, get_exercise, harness_key, solution_text

NAME = "cuda_vector_add"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A class of three: Ann has solved it at the second try, Ben has begun, Cid has changed other lines."""
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    exercise = get_exercise(NAME)
    for student in ("ann", "ben", "cid"):
        workspace = Workspace(tmp_path / "class" / student / "my_exercises", may_be_new=True)
        workspace.start(exercise)
        if student != "ben":
            fill_gap(exercise, workspace.path(exercise), solution_text(exercise))
            for solved in (False, True):
                workspace.keep_try(exercise, solved=solved)
    program = tmp_path / "class" / "cid" / "my_exercises" / NAME / "program.cu"
    program.write_text(program.read_text().replace("return 1;", "return 0;"))
    return tmp_path / "class"


def rows(path: Path) -> dict[tuple[str, str], list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        header, *found = csv.reader(file)
    assert header == ["student", "exercise", "solved", "tries", "first failing case"]
    return {(student, exercise): rest for student, exercise, *rest in found}


def test_a_class_is_graded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run judges nothing; a change is judged, and what fails is named."""
    judged: list[str] = []
    check = grading_module.check_sources

    def counted(exercise, sources, shown_as):  # type: ignore[no-untyped-def]
        judged.append(exercise.name)
        return check(exercise, sources, shown_as)

    monkeypatch.setattr(grading_module, "check_sources", counted)
    # Whatever earlier runs have kept depends on other variables.
    monkeypatch.setenv("LADDER_TEST", str(folder))
    harness_key.cache_clear()
    assert main(["class", "grade", str(folder)]) == 0
    found = rows(Path("grades.csv"))
    assert found["ann", NAME] == ["yes", "2", ""]
    assert found["ben", NAME] == ["no", "0", "program.cu 512: wrong output"]
    assert found["cid", NAME] == ["no", "2", "lines outside the markers are changed"]
    page = Path("class.html").read_text(encoding="utf-8")
    assert "1 solved it, 2 did not." in page and "return 1;" in page
    assert judged == 3 * [NAME]

    assert grade_class(folder).by["ann", NAME].state == "solved" and judged == 3 * [NAME]
    exercise = get_exercise(NAME)
    fill_gap(exercise, folder / "ben" / "my_exercises" / NAME, "int nonsense = ;")
    again = grade_class(folder).by["ben", NAME]
    assert again.case == "does not compile" and f"{NAME}/program.cu" in again.text and judged == 4 * [NAME]


def test_what_cannot_be_graded_is_named(folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading_module, "check_sources", None)  # nothing here is to be judged
    for student in ("ann", "ben", "cid"):
        (folder / student / "my_exercises" / NAME / "program.cu").unlink()
    (folder / "ann" / "my_exercises" / NAME / "program.cu").symlink_to("/etc/hostname")
    (folder / "ben" / "my_exercises" / NAME / "program.cu").symlink_to("program.cu")
    (folder / "cid" / "my_exercises" / NAME / "program.cu").write_bytes(b" " * (2**20 + 1))
    (folder / "cid" / "my_exercises" / ".progress.json").write_text("{]")
    (folder / "dan").mkdir()
    (folder / "eve" / "cuda_vector_ad").mkdir(parents=True)
    (folder / "eve" / "cuda_vector_ad" / "program.cu").touch()
    (folder / "fay").symlink_to("/etc")
    (folder / "gus").mkdir()
    (folder / "gus" / "my_exercises").symlink_to(folder / "ann" / "my_exercises")
    assert main(["class", "grade", str(folder)]) == 1
    said = capsys.readouterr().err
    for text in (
        f"ann/my_exercises/{NAME}/program.cu is a link out of the student's folder",
        f"ben/my_exercises/{NAME}/program.cu cannot be read",
        f"cid/my_exercises/{NAME}/program.cu has 1,048,577 bytes",
        "there are no tries and hints of cid",
        "dan has handed in nothing",
        "eve/cuda_vector_ad: there is no exercise 'cuda_vector_ad'; did you mean cuda_vector_add?",
        "fay is a link to another folder",
        "gus is a link to another folder",
    ):
        assert text in said
    assert rows(Path("grades.csv"))["ann", NAME] == ["no", "2", "unreadable"]


def test_a_folder_that_is_not_a_class_s(folder: Path, capsys) -> None:
    (folder.parent / "empty").mkdir()
    for place, message in (
        ("nowhere", "there is no folder nowhere"),
        ("empty", "empty holds no folders"),
        ("class/ann/my_exercises", "holds exercises, as one student's folder does"),
    ):
        assert main(["class", "grade", place]) == 2
        assert message in capsys.readouterr().err
    assert main(["class", "grade", "class", "--exercise", "v1_ise"]) == 2
    assert "did you mean v1_lse?" in capsys.readouterr().err
    with pytest.raises(SubmissionError, match="is no folder"):
        submissions(folder / "ann" / "my_exercises" / NAME / "program.cu")


def test_names_of_students_are_text_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a page nor a spreadsheet runs them."""
    monkeypatch.setattr(grading_module, "kept", lambda *_: grading_module._Judged(True, True, "", "", {}))
    (folder / "ann").rename(folder / "=1+1")
    (folder / "ben").rename(folder / "<b>ben")
    assert main(["class", "grade", str(folder)]) == 0
    page = Path("class.html").read_text()
    assert "\n'=1+1," in Path("grades.csv").read_text()
    assert "<b>ben" not in page and "&lt;b&gt;ben" in page
