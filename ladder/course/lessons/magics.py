"""Magics for CUDA cells: ``%%cuda`` runs a program, ``%%cuda --debug`` shows its steps as a widget, and
``%%exercise NAME`` checks the gap of an exercise.

``%exercise NAME`` shows the task and turns itself into such a cell, filled with the current gap.

``%load_ext ladder.lessons`` registers both, and makes ``!ladder`` run this environment's command.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ladder.common.wording import said
from ladder.course.exercises import (
    Exercise,
    Workspace,
    afterword_lines,
    check_gap,
    check_text,
    gap_text,
    get_exercise,
    verdict_lines,
    worded,
)
from ladder.course.lessons.stepper import debug_cell
from ladder.errors import LadderError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magics, and puts the environment's commands first on the PATH."""
    from IPython.display import display

    commands = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "").split(os.pathsep)
    if commands not in path:
        os.environ["PATH"] = os.pathsep.join([commands, *path])

    def exercise(line: str, cell: str | None = None) -> None:
        text = run_exercise(line, cell or "")
        if text is not None:
            if (drawing := get_exercise(line.strip()).drawing()) is not None:
                display(drawing)
            shell.set_next_input(f"%%exercise {line.strip()}\n{text}", replace=True)

    def cuda(line: str, cell: str) -> None:
        if "--debug" not in line.split():
            return run_program(line, cell)
        try:
            display(debug_cell(line, cell))
        except LadderError as error:
            print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""))

    shell.magics_manager.register_function(cuda, "cell", "cuda")
    shell.magics_manager.register_function(exercise, "line_cell", "exercise")


@dataclass(frozen=True, repr=False)
class Task:
    """What an exercise asks for. A notebook wraps it to its own width."""

    exercise: Exercise

    def __repr__(self) -> str:
        return "\n\n".join([self.exercise.title, self.exercise.task, self._request])

    def _repr_markdown_(self) -> str:
        texts = [self.exercise.task, self._request]
        return "\n\n".join([f"**{as_markdown(self.exercise.title)}**", *map(as_markdown, texts)])

    @property
    def _request(self) -> str:
        return said("To write: {goal}. Then run the cell again.", goal=self.exercise.gap.goal)


def as_markdown(text: str) -> str:
    """The text, in which Markdown's signs other than those of code stand for themselves."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\\])", r"\\\1", part) for part in parts)


def run_program(line: str, cell: str) -> None:
    """Runs the CUDA program ``cell``, with ``ladder emulate``'s options in ``line``; prints its output."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.cu"
        # The cell's first line is the magic: with a line in its place, messages count as the cell does.
        program.write_text("\n" + cell, encoding="utf-8")
        command = [sys.executable, "-m", "ladder", "emulate", program.name, *shlex.split(line)]
        # Jupyter's kernel sets FORCE_COLOR, but saved text should not contain escape codes.
        environment = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    # A fault, too, is in stderr already: the runtime names it when it happens. The command to repeat names
    # files that are gone.
    unwanted = (f"Building {program.name}", "fault: ", "To repeat: ")
    lines = [_folded(line) for line in done.stderr.splitlines() if not line.startswith(unwanted)]
    print("\n".join([done.stdout.rstrip(), *lines]).replace(f"{program.parent}/", "").strip())


def _folded(line: str) -> str:
    """Breaks the line of a fault where a cell's output ends; other lines are left as they are."""
    if not line.startswith("ladder: "):
        return line
    return textwrap.fill(line, 88, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def run_exercise(line: str, cell: str) -> str | None:
    """Checks ``cell`` as the gap of the exercise ``line``; prints what is wrong, or what to read next.

    Without a cell, prints the task instead and returns the gap's current text.
    """
    from IPython.display import display

    try:
        exercise = get_exercise(line.strip())
        if cell.strip():
            _cells[exercise.name] = cell
            if _has_news(exercise, cell):
                name = exercise.name
                print(
                    said("The gap of {name} was changed outside of this notebook. It holds:", name=name)
                    + "\n"
                )
                print(_seen[name])
                print(
                    "\n"
                    + said(
                        "%exercise {name} loads these lines. If you run this cell again, it overwrites them.",
                        name=name,
                    )
                )
                return None
            verdict = check_text(exercise.name, cell)
            afterword = afterword_lines(verdict, cell) if verdict.passed else ()
            console = Console(width=88, force_jupyter=False, file=sys.stdout)
            for text in (*verdict_lines(verdict), *afterword):
                console.print(text, highlight=False)
            _seen[exercise.name] = _gap_now(exercise)
            return None
        display(Task(worded(exercise)))
        text = _seen[exercise.name] = _gap_now(exercise)
        print(text)
        return text
    except LadderError as error:
        print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""))
        return None


def require_solved(name: str) -> None:
    """For a notebook's tests, such as nbgrader's: judges the last cell ``%%exercise NAME`` that has run.

    Raises AssertionError with what is wrong, and :class:`ExerciseError` for an unknown name. A working copy
    of the same exercise makes no difference.
    """
    exercise = get_exercise(name)
    if name not in _cells:
        raise AssertionError(f"no cell %%exercise {name} has run")
    verdict = check_gap(exercise, _cells[name])
    if not verdict.passed:
        raise AssertionError(f"{verdict.first_failing_case}\n{verdict.findings[0].text}")


#: The last cell of each exercise that has run in this notebook.
_cells: dict[str, str] = {}
#: Each exercise's gap as this notebook last read or wrote it.
_seen: dict[str, str] = {}


def _has_news(exercise: Exercise, cell: str) -> bool:
    """Whether the gap was changed elsewhere: it is neither the exercise's text, nor the last seen, nor the
    cell.

    Records the new text as seen.
    """
    now = _gap_now(exercise)
    known = (exercise.gap.skeleton.strip("\n"), _seen.get(exercise.name), cell.strip("\n"))
    _seen[exercise.name] = now
    return now not in known


def _gap_now(exercise: Exercise) -> str:
    """The gap's text: the student's, or the exercise's own if it has not been started."""
    workspace = Workspace()
    if workspace.is_started(exercise):
        return gap_text(exercise, workspace.path(exercise))
    return exercise.gap.skeleton.strip("\n")
