"""Magics for CUDA cells."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from ladder.course.exercises import Verdict, Workspace, fill_gap, gap_text, get_exercise
from ladder.course.lessons import magics

PROGRAM = """
#include <cstdio>
__global__ void one(int *x) { *x = 41 + blockDim.x; }
int main() {
  int *x;
  cudaMallocManaged(&x, 4);
  one<<<1, 1>>>(x);
  cudaDeviceSynchronize();
  std::printf("%d\\n", *x);
  cudaFree(x);
}
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working directory and a fresh notebook."""
    monkeypatch.setattr(magics, "_seen", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_runs_and_is_counted(here: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    magics.run_program("", PROGRAM)
    out, err = capsys.readouterr()
    assert out.startswith("42\n") and re.search(r"warp instructions +\d", out)
    assert "\x1b" not in out and "Building" not in out and err == ""


def test_a_program_that_is_none_says_where(here: Path, capsys) -> None:
    magics.run_program("", "int main() { return nothing; }")
    out = capsys.readouterr().out
    assert re.search(r"^program\.cu\(2\).*nothing", out, re.MULTILINE) and "To repeat" not in out


def test_a_fault_is_told_once_with_the_line_of_the_cell(here: Path, capsys) -> None:
    magics.run_program("", PROGRAM.replace("*x = 41", "x[1] = 41"))
    out = capsys.readouterr().out
    assert out.count("out of bounds") == 1 and "program.cu:4," in out
    assert all(len(line) <= 88 for line in out.splitlines())


def test_an_exercise_begins_with_its_task_and_leaves_no_trace(here: Path, capsys) -> None:
    exercise = get_exercise("v1_rescale")
    assert magics.run_exercise("v1_rescale", "") == exercise.gap.skeleton
    assert exercise.title in capsys.readouterr().out
    assert list(here.iterdir()) == []


def test_a_first_exercise_shows_its_picture_in_the_notebook_and_in_words(here: Path) -> None:
    testing = pytest.importorskip("IPython.testing.globalipapp")
    capture = pytest.importorskip("IPython.utils.capture")
    shell = testing.get_ipython()
    magics.load_ipython_extension(shell)
    with capture.capture_output() as shown:
        shell.run_line_magic("exercise", "cuda_map")
    [_, picture] = shown.outputs
    drawing = get_exercise("cuda_map").drawing()
    assert drawing is not None and picture.data["image/svg+xml"] == drawing.svg()
    assert drawing.alt in picture.data["text/plain"]


def test_a_cell_is_checked_in_the_workspace_of_the_command(here: Path, capsys, monkeypatch) -> None:
    exercise = get_exercise("v1_rescale")
    monkeypatch.setattr(
        "ladder.course.exercises.checking.check", lambda workspace, exercise: Verdict(exercise)
    )
    assert magics.run_exercise("v1_rescale", "const float l_old = 1;\n") is None
    said = capsys.readouterr().out
    assert "solved v1_rescale" in said and "the reference's (+)" in said
    workspace = Workspace()
    assert gap_text(exercise, workspace.path(exercise)) == "const float l_old = 1;"
    assert workspace.progress(exercise).solved
    # The next time, the cell contains what was written.
    assert magics.run_exercise("v1_rescale", "") == "const float l_old = 1;"


def test_a_cell_does_not_write_over_what_an_editor_wrote(here: Path, capsys, monkeypatch) -> None:
    exercise, workspace = get_exercise("v1_rescale"), Workspace()
    monkeypatch.setattr(
        "ladder.course.exercises.checking.check", lambda workspace, exercise: Verdict(exercise)
    )
    magics.run_exercise("v1_rescale", "  const float l_old = 1;\n")
    magics.run_exercise("v1_rescale", "const float l_old = 2;\n")  # the notebook's own lines
    assert gap_text(exercise, workspace.path(exercise)) == "const float l_old = 2;"
    fill_gap(exercise, workspace.path(exercise), "const float l_old = 3;")
    capsys.readouterr()
    magics.run_exercise("v1_rescale", "const float l_old = 4;\n")
    said = capsys.readouterr().out
    assert "changed outside" in said and "const float l_old = 3;" in said and "solved" not in said
    assert gap_text(exercise, workspace.path(exercise)) == "const float l_old = 3;"
    magics.run_exercise("v1_rescale", "const float l_old = 4;\n")
    assert gap_text(exercise, workspace.path(exercise)) == "const float l_old = 4;"


def test_an_exercise_that_is_none(capsys) -> None:
    assert magics.run_exercise("v1_rescael", "") is None
    assert "did you mean v1_rescale?" in capsys.readouterr().out


def test_the_extension_registers_both_and_finds_the_command(monkeypatch) -> None:
    testing = pytest.importorskip("IPython.testing.globalipapp")
    monkeypatch.setenv("PATH", "/usr/bin")
    shell = testing.get_ipython()
    shell.run_line_magic("load_ext", "ladder.lessons")
    assert {"cuda", "exercise"} <= set(shell.magics_manager.magics["cell"])
    assert os.environ["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/usr/bin"]
