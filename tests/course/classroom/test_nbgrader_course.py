"""The course for nbgrader: a solution that its converters can take out, and a test cell that judges the cell
before it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from ladder.course.exercises import get_exercise, solution_text
from ladder.course.lessons import magics, require_solved

SCRIPT = Path(__file__).parents[3] / "classroom" / "nbgrader_course.py"
NAME = "cuda_vector_add"


@pytest.fixture(scope="module")
def course() -> ModuleType:
    specification = importlib.util.spec_from_file_location("nbgrader_course", SCRIPT)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_default_exercise_has_three_cells(course: ModuleType) -> None:
    exercises = [get_exercise(name) for name in course.DEFAULT]
    cells = course.notebook("a", exercises, points=2).cells
    marks = {cell.metadata["nbgrader"]["grade_id"]: (cell, cell.metadata["nbgrader"]) for cell in cells}
    assert len(marks) == len(cells) == 2 + 3 * len(exercises)
    for exercise in exercises:
        solution, mark = marks[exercise.name]
        assert mark["solution"] and not mark["locked"]
        magic, begin, *lines, end = solution.source.splitlines()
        assert magic == f"%%exercise {exercise.name}" and "BEGIN SOLUTION" in begin and "END SOLUTION" in end
        assert "\n".join(lines) == solution_text(exercise)
        test, mark = marks[f"{exercise.name}-test"]
        assert mark["grade"] and mark["locked"] and mark["points"] == 2 and exercise.name in test.source
        task, mark = marks[f"{exercise.name}-task"]
        assert mark["locked"] and solution_text(exercise) not in task.source


def test_a_test_cell_judges_the_last_cell_that_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(magics, "_cells", {})
    with pytest.raises(AssertionError, match="no cell %%exercise"):
        require_solved(NAME)
    exercise = get_exercise(NAME)
    magics.run_exercise(NAME, exercise.gap.skeleton)
    with pytest.raises(AssertionError, match="wrong output"):
        require_solved(NAME)
    magics.run_exercise(NAME, f"// BEGIN SOLUTION\n{solution_text(exercise)}\n// END SOLUTION")
    require_solved(NAME)
    # A working copy that was changed since makes no difference.
    program = tmp_path / "my_exercises" / NAME / "program.cu"
    program.write_text(program.read_text().replace("// BEGIN SOLUTION", "nonsense"))
    magics.run_exercise(NAME, solution_text(exercise))
    assert "was changed outside of this notebook" in capsys.readouterr().out
    require_solved(NAME)
