"""Exercises, and the source with a gap that is made from an exercise's rung or program.

The rung is the single source. exercise.toml names the lines to take out, by pieces of the first and the last,
and the skeleton to put there instead. So the solution is the rung itself, unless the exercise gives its own.

An exercise without a rung has a program.cu in its folder, complete with a ``main`` that checks its own
results. A gap is made in it in the same way.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.course.exercises.table import ExerciseError
from ladder.operations import AnyProblem
from ladder.stages import DEFAULT_ARCH, Stage, discover, exercises_root

if TYPE_CHECKING:
    from ladder.show.plots import Drawing

#: A count that is not a column of the table: how often warps arrived at a barrier of their block.
BLOCK_BARRIERS = "block_barriers"
#: Another one, of programs: the warp instructions with an atomic operation on global memory.
GLOBAL_ATOMICS = "global_atomic_instructions"
BEGIN, END = "// begin exercise", "// end exercise"
#: In the working copy of a program.
PICTURE = "picture.svg"
#: The folder of a working copy that holds lines which are the solutions of other exercises.
OTHERS = "others"


@functools.cache
def _rung(name: str, folders: str) -> Stage:
    """A rung among those that are there with this value of ``LADDER_STAGES``: a check asks often."""
    del folders
    return discover()[name]


@dataclass(frozen=True)
class Share:
    """What block 0 of a persistent kernel computes on a GPU of so many multiprocessors, such as ``rows 0-191
    of head 0; rows 0-191 of head 3``.
    """

    multiprocessors: int
    rows: str


@dataclass(frozen=True)
class Case:
    """A problem to try a solution on, and limits on table columns and :data:`BLOCK_BARRIERS`.

    A solution that counts less than ``at_least`` does not do what the task says. ``reason`` explains the
    limits. ``first_block`` is given if the order of work items is part of the task.
    """

    problem: AnyProblem
    at_most: Mapping[str, int] = field(default_factory=dict)
    at_least: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    first_block: Share | None = None


@dataclass(frozen=True)
class Run:
    """A run of a program: its arguments, and upper limits on the counts of all its kernels together, with the
    ``reason`` for them.
    """

    arguments: tuple[str, ...]
    at_most: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Gap:
    """The lines of a file that the student writes, located by pieces of the first and the last line.

    A piece that begins with a space must match the whole line. With ``after``, the search starts below the
    only line that contains it. ``solution`` is None if the origin's own lines are the solution.
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
    """A change to the rung's text outside the gap, made in both skeleton and solution."""

    file: str
    find: str
    replace: str


@dataclass(frozen=True)
class Exercise:
    """One exercise. ``owner`` says what holds a row of the result: a ``thread``, or a warp's ``fragments``.

    ``afterword`` is shown once it is solved. An ``open_book`` exercise has so many lines that lessons show
    them anyway; the task is to rewrite them. One that ``is_last`` comes after those on rungs. An exercise on
    a rung is tried on its ``cases``; a program, whose ``rung`` is None, in its ``runs``.
    """

    name: str
    rung: str | None
    number: int
    title: str
    task: str
    hints: tuple[str, ...]
    afterword: str
    open_book: bool
    is_last: bool
    owner: str
    gap: Gap
    edits: tuple[Edit, ...]
    cases: tuple[Case, ...]
    runs: tuple[Run, ...]

    def stage(self) -> Stage:
        """The rung that it is made from; must not be called for a program."""
        assert self.rung is not None
        return _rung(self.rung, os.environ.get("LADDER_STAGES", ""))

    @property
    def arch(self) -> str:
        """The virtual GPU that it is tried on."""
        return DEFAULT_ARCH if self.rung is None else self.stage().default_arch

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return exercises_root() / self.name

    @property
    def main_file(self) -> str:
        """The file by which a working copy is recognised."""
        return "program.cu" if self.rung is None else "kernel.cu"

    def drawing(self) -> Drawing | None:
        """What the task of a first program is about, as a picture; other exercises have None."""
        from ladder.show.plots import drawing

        return drawing(self.name) if self.rung is None and not self.is_last else None

    @property
    def solved_by_origin(self) -> bool:
        """Whether the unchanged source of the rung or program is the solution."""
        return not self.edits and self.gap.solution is None

    @property
    def closes_lessons(self) -> bool:
        """Whether lessons hide its lines in listings of the rung until it is solved."""
        return self.rung is not None and self.solved_by_origin and not self.open_book

    def closes(self, other: Exercise) -> bool:
        """Whether a working copy can leave out the lines of ``other``.

        They must be the solution of it, on the same rung and in a file of this exercise, and none of them in
        this exercise's gap.
        """
        if other.name == self.name or other.rung != self.rung or not other.closes_lessons:
            return False
        if other.gap.file not in self.files():
            return False
        try:
            lines = self._lines(other.gap.file)
            theirs = other._place(lines)
            own = self._place(lines) if self.gap.file == other.gap.file else range(0)
        except ExerciseError:
            return False  # an edit has changed what is looked for
        return not set(theirs) & set(own)

    def sources(self, *, solved: bool, closed: Sequence[Exercise] = ()) -> dict[str, str]:
        """The text of every file with the gap or an edit, as skeleton or as solution, including the markers.

        The lines of the exercises in ``closed``, each of which this one :meth:`closes`, stand in files of
        their own, which are included. Of two that overlap only the longer is.

        Raises :class:`ExerciseError` if a piece does not match exactly one line of the origin.
        """
        found: dict[str, str] = {}
        for file in self.files():
            found |= self._sources(file, solved, [one for one in closed if one.gap.file == file])
        return found

    def files(self) -> list[str]:
        """The names of the files with the gap or an edit, and of the main one."""
        return list(dict.fromkeys([self.main_file, *(edit.file for edit in self.edits), self.gap.file]))

    def _origin(self, file: str) -> Path:
        return self.folder / file if self.rung is None else self.stage().source(file)

    def _lines(self, file: str) -> list[str]:
        """The lines of the origin with this exercise's edits."""
        text = self._origin(file).read_text(encoding="utf-8")
        for edit in self.edits:
            if edit.file == file:
                if edit.find not in text:
                    raise self._misfit(file, f"nowhere holds {edit.find!r}")
                text = text.replace(edit.find, edit.replace)
        return text.splitlines()

    def _sources(self, file: str, solved: bool, closed: Sequence[Exercise]) -> dict[str, str]:
        lines = self._lines(file)
        parts = {one._place(lines): one for one in closed}
        if self.gap.file == file:
            parts[self._place(lines)] = self
        places: list[range] = []
        for place in sorted(parts, key=lambda one: (-len(one), one.start)):
            if not any(set(place) & set(longer) for longer in places):
                places.append(place)
        lines = self._renamed(lines)
        found = {}
        for place in sorted(places, key=lambda one: one.start, reverse=True):
            one, own = parts[place], lines[place.start : place.stop]
            if one is self:
                lines[place.start : place.stop] = self._renamed(self._marked(own, solved))
                continue
            header = f"{OTHERS}/{one.name}.h"
            found[header] = "\n".join(own) + "\n"
            up = "../" * file.count("/")
            lines[place.start : place.stop] = [
                f"{_indent(own)}// exercise {one.name}: {one.gap.goal}",
                f'#include "{up}{header}"',
            ]
        return {file: "\n".join(lines) + "\n", **found}

    def _renamed(self, lines: Sequence[str]) -> list[str]:
        """The lines with the exercise's name in place of the rung's."""
        if self.rung is None:
            return list(lines)
        return [re.sub(rf"\b{re.escape(self.rung)}\b", self.name, line) for line in lines]

    def _place(self, lines: Sequence[str]) -> range:
        """Where the lines of the gap are."""
        gap = self.gap
        if gap.after is not None:
            first = self._next(lines, gap.first, self._only(lines, gap.after) + 1)
        else:
            first = self._only(lines, gap.first)
        return range(first, self._next(lines, gap.last, first) + 1)

    def _marked(self, own: Sequence[str], solved: bool) -> list[str]:
        """The lines of the gap, or what stands there instead, between the markers."""
        gap, indent, inner = self.gap, _indent(own), list(own)
        if not solved or gap.solution is not None:
            inner = indented(gap.skeleton if not solved else gap.solution or "", indent)
        return [f"{indent}{BEGIN}: {gap.goal}", *inner, f"{indent}{END}"]

    def _only(self, lines: Sequence[str], piece: str) -> int:
        found = [number for number, line in enumerate(lines) if _fits(piece, line)]
        if len(found) != 1:
            raise self._misfit(self.gap.file, f"has {len(found) or 'no'} lines with {piece!r}, not one")
        return found[0]

    def _next(self, lines: Sequence[str], piece: str, start: int) -> int:
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
    """Splits the text of a gap into lines, indents them by ``indent`` and strips surrounding blank lines.

    Relative indentation is kept. Preprocessor directives stay at the left margin.
    """
    lines = text.strip("\n").splitlines()
    code = [line for line in lines if line.strip() and not _is_directive(line)]
    left = min((len(line) - len(line.lstrip()) for line in code), default=0)
    return [line if _is_directive(line) else (indent + line[left:]).rstrip() for line in lines]


def _indent(lines: Sequence[str]) -> str:
    """The indentation of the first line of code."""
    code = next((line for line in lines if not _is_directive(line)), "")
    return code[: len(code) - len(code.lstrip())]


def _fits(piece: str, line: str) -> bool:
    return line == piece if piece.startswith(" ") else piece in line


def _is_directive(line: str) -> bool:
    """Whether the line is a preprocessor directive, which is never indented."""
    return line.startswith("#")
