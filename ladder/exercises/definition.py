"""What an exercise is, and the source with a gap that is made from its rung or its program.

The rung is the one source. exercise.toml names the lines of it that are taken out, by a piece of the first
and of the last one, and what stands there instead when the exercise begins. So the solution is the rung
itself, unless the exercise gives lines of its own for it.

An exercise without a rung has a program.cu of its own in its folder, complete with ``main``, which looks at
its own results. A gap is made in it in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ladder.exercises.table import ExerciseError
from ladder.operations import AnyProblem
from ladder.stages import Stage, discover, exercises_root

#: A count that is no column of the table: how often a warp came to a barrier of its block.
BLOCK_BARRIERS = "block_barriers"
BEGIN, END = "// begin exercise", "// end exercise"


@dataclass(frozen=True)
class Case:
    """A problem that a solution is tried on, and the most that it may count there: columns of the table,
    and :data:`BLOCK_BARRIERS`."""

    problem: AnyProblem
    at_most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run of a program: its arguments, and the most that all of its kernels together may count."""

    arguments: tuple[str, ...]
    at_most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Gap:
    """Lines of a file that the student writes: from the first one to the last, found by a piece of each.

    A piece that begins with a blank is the whole line. With ``after``, the search begins below the one line
    that holds it. ``solution`` is None where the origin's own lines are the solution.
    """

    file: str
    after: str | None
    first: str
    last: str
    goal: str
    skeleton: str
    solution: str | None


@dataclass(frozen=True)
class Edit:
    """A change of the rung's text outside the gap: it stands in the skeleton and in the solution."""

    file: str
    find: str
    replace: str


@dataclass(frozen=True)
class Exercise:
    """One exercise. ``owner`` says what holds a row of the result: ``thread`` or ``fragments`` of a warp.

    ``afterword`` is read when it is solved. The lines of an ``open_book`` are so many that lessons show them
    all the same: what is asked is to write them anew. One with a rung is tried on its ``cases``, a program of
    its own, whose ``rung`` is None, in its ``runs``.
    """

    name: str
    rung: str | None
    number: int
    title: str
    task: str
    hints: tuple[str, ...]
    afterword: str
    open_book: bool
    owner: str
    gap: Gap
    edits: tuple[Edit, ...]
    cases: tuple[Case, ...]
    runs: tuple[Run, ...]

    def stage(self) -> Stage:
        """The rung that it is made from; a program has none."""
        assert self.rung is not None
        return discover()[self.rung]

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return exercises_root() / self.name

    @property
    def main_file(self) -> str:
        """What a working copy is known by."""
        return "program.cu" if self.rung is None else "kernel.cu"

    @property
    def solved_by_origin(self) -> bool:
        """Whether the rung's, or the program's, own source is the solution."""
        return not self.edits and self.gap.solution is None

    @property
    def closes_lessons(self) -> bool:
        """Whether a lesson that lists the rung leaves its lines out until it is solved."""
        return self.rung is not None and self.solved_by_origin and not self.open_book

    def sources(self, *, solved: bool) -> dict[str, str]:
        """The text of every file with the gap or an edit: the skeleton's or the solution's, with the markers.

        Raises :class:`ExerciseError` when the origin has no such line, or several.
        """
        files = dict.fromkeys([self.main_file, *(edit.file for edit in self.edits), self.gap.file])
        return {file: self._source(file, solved) for file in files}

    def _origin(self, file: str) -> Path:
        return self.folder / file if self.rung is None else self.stage().source(file)

    def _source(self, file: str, solved: bool) -> str:
        text = self._origin(file).read_text(encoding="utf-8")
        for edit in self.edits:
            if edit.file == file:
                if edit.find not in text:
                    raise self._misfit(file, f"nowhere holds {edit.find!r}")
                text = text.replace(edit.find, edit.replace)
        lines = text.splitlines()
        if self.gap.file == file:
            self._cut(lines, solved)
        text = "\n".join(lines) + "\n"
        return text if self.rung is None else re.sub(rf"\b{re.escape(self.rung)}\b", self.name, text)

    def _cut(self, lines: list[str], solved: bool) -> None:
        gap = self.gap
        if gap.after is not None:
            first = self._next(lines, gap.first, self._only(lines, gap.after) + 1)
        else:
            first = self._only(lines, gap.first)
        last = self._next(lines, gap.last, first)
        inner = lines[first : last + 1]
        code = next((line for line in inner if not _is_directive(line)), "")
        indent = code[: len(code) - len(code.lstrip())]
        if not solved or gap.solution is not None:
            text = gap.skeleton if not solved else gap.solution or ""
            inner = indented(text, indent)
        lines[first : last + 1] = [f"{indent}{BEGIN}: {gap.goal}", *inner, f"{indent}{END}"]

    def _only(self, lines: list[str], piece: str) -> int:
        found = [number for number, line in enumerate(lines) if _fits(piece, line)]
        if len(found) != 1:
            raise self._misfit(self.gap.file, f"has {len(found) or 'no'} lines with {piece!r}, not one")
        return found[0]

    def _next(self, lines: list[str], piece: str, start: int) -> int:
        found = next((number for number in range(start, len(lines)) if _fits(piece, lines[number])), None)
        if found is None:
            raise self._misfit(self.gap.file, f"has no line with {piece!r} where it is looked for")
        return found

    def _misfit(self, file: str, what: str) -> ExerciseError:
        return ExerciseError(
            f"exercise {self.name} does not fit its source: {self._origin(file)} {what}",
            "The source has changed and exercise.toml has not.",
        )


def indented(text: str, indent: str = "") -> list[str]:
    """The lines of a gap, as far to the right as ``indent``, without empty ones around them.

    They keep their indents relative to each other. Directives of the preprocessor stay at the left edge.
    """
    lines = text.strip("\n").splitlines()
    code = [line for line in lines if line.strip() and not _is_directive(line)]
    left = min((len(line) - len(line.lstrip()) for line in code), default=0)
    return [line if _is_directive(line) else (indent + line[left:]).rstrip() for line in lines]


def _fits(piece: str, line: str) -> bool:
    return line == piece if piece.startswith(" ") else piece in line


def _is_directive(line: str) -> bool:
    """Whether the line is the preprocessor's, which is never indented."""
    return line.startswith("#")
