"""A course for nbgrader: ``python classroom/nbgrader_course.py [EXERCISE ...]`` writes build/nbgrader.

Each exercise becomes a task, a solution cell and a test cell in the notebook of one assignment. nbgrader then
makes the students' version (generate_assignment) and grades what they hand in (autograde). Its kernel needs
flash-ladder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from ladder.course.exercises import Exercise, get_exercise, solution_text
from ladder.errors import LadderError

ROOT = Path(__file__).resolve().parent.parent
#: The exercises of the three-hour plan in docs/instructor.md.
DEFAULT = ("v1_rescale", "v1_column_major", "v2_ldmatrix_k", "v3_xor", "v3_parameters")
_CONFIG = """c = get_config()
c.CourseDirectory.course_id = "flash-ladder"
c.ClearSolutions.code_stub = {"python": "// Your lines"}
c.Execute.timeout = 600  # seconds per cell: the first check of a kernel compiles it
"""
_HEAD = """# {name}

Each task asks for a few lines of a CUDA kernel. Write them in the cell below the task and run it: the kernel
is compiled, run on an emulated GPU and checked. The cell after it gives the point.
"""


def notebook(name: str, exercises: Sequence[Exercise], points: int) -> nbformat.NotebookNode:
    """The instructor's version of an assignment."""
    head = new_code_cell("%load_ext ladder.lessons\nfrom ladder import lessons")
    cells = [
        _marked(new_markdown_cell(_HEAD.format(name=name)), "head", locked=True),
        _marked(head, "setup", locked=True),
        *(cell for exercise in exercises for cell in _cells(exercise, points)),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _cells(exercise: Exercise, points: int) -> Iterator[nbformat.NotebookNode]:
    name = exercise.name
    task = f"## {exercise.title}\n\n{exercise.task}\n\nAt first the gap, {exercise.gap.goal}, holds\n\n"
    task += f"```cpp\n{exercise.gap.skeleton.strip()}\n```"
    yield _marked(new_markdown_cell(task), f"{name}-task", locked=True)
    solution = f"%%exercise {name}\n// BEGIN SOLUTION\n{solution_text(exercise)}\n// END SOLUTION"
    yield _marked(new_code_cell(solution), name, solution=True)
    test = new_code_cell(f'lessons.require_solved("{name}")')
    yield _marked(test, f"{name}-test", locked=True, grade=True, points=points)


def _marked(
    cell: nbformat.NotebookNode,
    grade_id: str,
    *,
    locked: bool = False,
    solution: bool = False,
    grade: bool = False,
    points: int = 0,
) -> nbformat.NotebookNode:
    """The cell with nbgrader's metadata, schema version 3."""
    cell.metadata["nbgrader"] = {
        "schema_version": 3,
        "grade_id": grade_id,
        "locked": locked,
        "solution": solution,
        "grade": grade,
        "task": False,
        **({"points": points} if grade else {}),
    }
    return cell


def main() -> int:
    parser = argparse.ArgumentParser(description="A course folder for nbgrader.")
    parser.add_argument("exercises", nargs="*", metavar="EXERCISE", help=f"default: {' '.join(DEFAULT)}")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "nbgrader", metavar="DIR")
    parser.add_argument("--assignment", default="bank_conflicts", metavar="NAME", help="(%(default)s)")
    parser.add_argument("--points", type=int, default=1, metavar="N", help="per exercise (%(default)s)")
    options = parser.parse_args()
    try:
        exercises = [get_exercise(name) for name in options.exercises or DEFAULT]
    except LadderError as error:
        parser.error(str(error))
    target = options.into / "source" / options.assignment / f"{options.assignment}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(options.assignment, exercises, options.points), target)
    (options.into / "nbgrader_config.py").write_text(_CONFIG, encoding="utf-8")
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
