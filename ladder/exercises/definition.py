"""What an exercise is: its exercise.toml, and the source with a gap that is made from its rung.

The rung is the one source. exercise.toml names the lines of it that are taken out, by a piece of the first
and of the last one, and what stands there instead when the exercise begins. So the solution is the rung
itself, unless the exercise gives lines of its own for it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ladder.emulator import COUNTERS
from ladder.errors import InvalidProblem, LadderError, StageError
from ladder.operations import AnyProblem, get_operation
from ladder.stages import Stage, discover, exercises_root

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: A count that is no column of the table: how often a warp came to a barrier of its block.
BLOCK_BARRIERS = "block_barriers"
BEGIN, END = "// begin exercise", "// end exercise"


class ExerciseError(LadderError):
    """An exercise that does not exist, or whose exercise.toml does not fit its rung."""


@dataclass(frozen=True)
class Case:
    """A problem that a solution is tried on, and the most that it may count there: columns of the table,
    and :data:`BLOCK_BARRIERS`."""

    problem: AnyProblem
    at_most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Gap:
    """Lines of a file that the student writes: from the first one to the last, found by a piece of each.

    With ``after``, the search begins below the one line that holds it. ``solution`` is None where the rung's
    own lines are the solution.
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
    """One exercise. ``owner`` says what holds a row of the result: ``thread`` or ``fragments`` of a warp."""

    name: str
    rung: str
    number: int
    title: str
    task: str
    hints: tuple[str, ...]
    owner: str
    gap: Gap
    edits: tuple[Edit, ...]
    cases: tuple[Case, ...]

    def stage(self) -> Stage:
        """The rung that it is made from."""
        return discover()[self.rung]

    @property
    def solved_by_rung(self) -> bool:
        """Whether the rung's own source is the solution."""
        return not self.edits and self.gap.solution is None

    def sources(self, *, solved: bool) -> dict[str, str]:
        """The text of every file with the gap or an edit: the skeleton's or the solution's, with the markers.

        Raises :class:`ExerciseError` when the rung has no such line, or several.
        """
        stage = self.stage()
        files = dict.fromkeys(["kernel.cu", *(edit.file for edit in self.edits), self.gap.file])
        return {file: self._source(stage, file, solved) for file in files}

    def _source(self, stage: Stage, file: str, solved: bool) -> str:
        text = stage.source(file).read_text(encoding="utf-8")
        for edit in self.edits:
            if edit.file == file:
                if edit.find not in text:
                    raise self._misfit(stage, file, f"nowhere holds {edit.find!r}")
                text = text.replace(edit.find, edit.replace)
        lines = text.splitlines()
        if self.gap.file == file:
            self._cut(stage, lines, solved)
        text = "\n".join(lines) + "\n"
        return re.sub(rf"\b{re.escape(stage.name)}\b", self.name, text)

    def _cut(self, stage: Stage, lines: list[str], solved: bool) -> None:
        gap, start = self.gap, 0
        if gap.after is not None:
            start = self._only(stage, gap, lines, gap.after) + 1
            first = self._next(stage, gap, lines, gap.first, start)
        else:
            first = self._only(stage, gap, lines, gap.first)
        last = self._next(stage, gap, lines, gap.last, first)
        inner = lines[first : last + 1]
        code = next((line for line in inner if not _is_directive(line)), "")
        indent = code[: len(code) - len(code.lstrip())]
        if not solved or gap.solution is not None:
            text = gap.skeleton if not solved else gap.solution or ""
            inner = indented(text, indent)
        lines[first : last + 1] = [f"{indent}{BEGIN}: {gap.goal}", *inner, f"{indent}{END}"]

    def _only(self, stage: Stage, gap: Gap, lines: list[str], piece: str) -> int:
        found = [number for number, line in enumerate(lines) if piece in line]
        if len(found) != 1:
            raise self._misfit(stage, gap.file, f"has {len(found) or 'no'} lines with {piece!r}, not one")
        return found[0]

    def _next(self, stage: Stage, gap: Gap, lines: list[str], piece: str, start: int) -> int:
        found = next((number for number in range(start, len(lines)) if piece in lines[number]), None)
        if found is None:
            raise self._misfit(stage, gap.file, f"has no line with {piece!r} where it is looked for")
        return found

    def _misfit(self, stage: Stage, file: str, what: str) -> ExerciseError:
        return ExerciseError(
            f"exercise {self.name} does not fit its rung: {stage.source(file)} {what}",
            "The rung has changed and exercise.toml has not.",
        )


def indented(text: str, indent: str = "") -> list[str]:
    """The lines of a gap, as far to the right as ``indent``, without empty ones around them.

    They keep their places to each other. Directives of the preprocessor stay at the left edge.
    """
    lines = text.strip("\n").splitlines()
    code = [line for line in lines if line.strip() and not _is_directive(line)]
    left = min((len(line) - len(line.lstrip()) for line in code), default=0)
    return [line if _is_directive(line) else (indent + line[left:]).rstrip() for line in lines]


def _is_directive(line: str) -> bool:
    """Whether the line is the preprocessor's, which is never indented."""
    return line.startswith("#")


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises, lowest rung first. Raises :class:`ExerciseError`."""
    order = [stage.name for stage in discover()]
    found = [read_exercise(path.parent) for path in exercises_root().glob("*/exercise.toml")]
    for exercise in found:
        if exercise.rung not in order:
            raise ExerciseError(f"exercise {exercise.name}: there is no rung {exercise.rung}")
    return tuple(sorted(found, key=lambda one: (order.index(one.rung), one.number, one.name)))


def get_exercise(name: str) -> Exercise:
    """The exercise of that name. Raises :class:`ExerciseError`, naming a near one."""
    import difflib

    found = {exercise.name: exercise for exercise in exercises()}
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        raise ExerciseError(
            f"there is no exercise {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            "ladder exercise list",
        )
    return found[name]


def read_exercise(folder: Path) -> Exercise:
    """The exercise in ``folder``. Raises :class:`ExerciseError`."""
    path = folder / "exercise.toml"
    try:
        table = _Table(path, "", tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExerciseError(f"{path} is not TOML: {error}") from error
    rung = table.text("rung")
    exercise = Exercise(
        name=folder.name,
        rung=rung,
        number=table.take("number", int),
        title=table.text("title"),
        task=table.text("task").strip(),
        hints=table.texts("hints"),
        owner=table.text("owner"),
        gap=_gap(table.table("gap")),
        edits=tuple(
            Edit(one.text("file", "kernel.cu"), one.text("find"), one.text("replace"))
            for one in table.tables("edits", [])
        ),
        cases=tuple(_case(one, rung) for one in table.tables("cases")),
    )
    table.finish()
    if exercise.owner not in ("thread", "fragments"):
        raise ExerciseError(f"{path}: owner is thread or fragments, not {exercise.owner!r}")
    if not exercise.cases or not exercise.hints:
        raise ExerciseError(f"{path}: there must be at least one of cases and of hints")
    return exercise


def _gap(table: _Table) -> Gap:
    first = table.text("first")
    gap = Gap(
        file=table.text("file", "kernel.cu"),
        after=table.text("after", "") or None,
        first=first,
        last=table.text("last", first),
        goal=table.text("goal"),
        skeleton=table.text("skeleton"),
        solution=table.text("solution", "") or None,
    )
    table.finish()
    return gap


#: Keys of a case that say the problem, besides size, with the kind of each and its field of the problem.
_FIELDS: dict[str, tuple[type, str]] = {
    "causal": (bool, "is_causal"),
    "kv_heads": (int, "kv_heads"),
    "dtype": (str, "dtype"),
    "inputs": (str, "inputs"),
    "scale": (float, "scale"),
}


def _case(table: _Table, rung: str) -> Case:
    taken = {field: table.take(key, kind, None) for key, (kind, field) in _FIELDS.items()}
    fields = {field: value for field, value in taken.items() if value is not None}
    at_most = table.take("at_most", dict, {})
    try:
        operation = get_operation(discover()[rung].computes)
        case = Case(operation.parse(table.text("size"), **fields), at_most)
    except (InvalidProblem, StageError) as error:
        raise table.error(error.message) from error
    except TypeError:
        raise table.error(f"{operation.title} has none of {', '.join(fields)}") from None
    unknown = [column for column in at_most if column not in (*COUNTERS, BLOCK_BARRIERS)]
    if unknown:
        raise table.error(f"at_most has {unknown[0]}, which is no count of the table")
    table.finish()
    return case


class _Table:
    """A table of exercise.toml; takes its values out, one check each."""

    def __init__(self, path: Path, place: str, values: Mapping[str, Any]) -> None:
        self._path = path
        self._place = place
        self._values = dict(values)

    def error(self, what: str) -> ExerciseError:
        return ExerciseError(f"{self._path}{self._place}: {what}")

    def take(self, key: str, kind: type, *default: Any) -> Any:
        if key not in self._values:
            if not default:
                raise self.error(f"there is no {key}")
            return default[0]
        value = self._values.pop(key)
        if type(value) is not kind:
            raise self.error(f"{key} = {value!r} is no {kind.__name__}")
        return value

    def text(self, key: str, *default: str) -> str:
        return str(self.take(key, str, *default))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"{key} = {values!r} is no list of texts")
        return tuple(value.strip() for value in values)

    def table(self, key: str) -> _Table:
        return _Table(self._path, f", {key}", self.take(key, dict))

    def tables(self, key: str, *default: list[Any]) -> Iterator[_Table]:
        for number, value in enumerate(self.take(key, list, *default), start=1):
            yield _Table(self._path, f", {key} {number}", value)

    def finish(self) -> None:
        """Raises :class:`ExerciseError` for a key that nobody took."""
        if self._values:
            raise self.error(f"unknown key {next(iter(self._values))}")
