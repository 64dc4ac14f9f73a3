"""Listings of kernels, read from the source when a lesson is shown, without the answers to its exercises.

An exercise's gap stays closed until the student has solved the exercise. Then the listing shows the student's
lines, followed by the rung's.
"""

from __future__ import annotations

import difflib
import html
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.course.exercises import BEGIN, END, Exercise, Workspace, exercises, gap_text
from ladder.errors import LadderError
from ladder.stages import discover


class LessonError(LadderError):
    """A lesson refers to a line that the source lacks or has more than once."""


@dataclass(frozen=True)
class Row:
    """A line of a listing. ``mark`` is shown on its left: a line number, a diff sign, or nothing."""

    mark: str
    text: str


@dataclass(frozen=True, repr=False)
class Excerpt:
    """Lines of source under a heading."""

    name: str
    rows: tuple[Row, ...]

    def _repr_html_(self) -> str:
        lines = []
        for row, text in zip(self.rows, _highlighted(self.rows), strict=True):
            mark = f'<span style="color: #777; user-select: none">{html.escape(row.mark):>4}  </span>'
            lines.append(f'<span style="{_ROW}{_GROUNDS.get(row.mark, "")}">{mark}{text}</span>')
        return f'<b>{html.escape(self.name)}</b><pre style="{_BOX}">{"".join(lines)}</pre>'

    def __repr__(self) -> str:
        return "\n".join(f"{row.mark:>4}  {row.text}".rstrip() for row in self.rows)


# The box sets both colours and background, so it does not depend on the page's style sheet, dark or light.
# Long lines are wrapped.
_BOX = (
    "background: #f8f8f8; color: #222; margin: 0; padding: 0.5em; white-space: pre-wrap; line-height: 1.35; "
    "font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-size: 12.5px"
)
_ROW = "display: block; overflow-wrap: anywhere; padding-left: 3em; text-indent: -3em; min-height: 1.35em;"
_GROUNDS = {"+": " background: #e2f3e2", "-": " background: #f9e3e3"}


def _highlighted(rows: Sequence[Row]) -> list[str]:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import CppLexer

    text = textwrap.dedent("\n".join(row.text for row in rows))
    lines = highlight(text, CppLexer(stripnl=False), HtmlFormatter(noclasses=True, nowrap=True)).split("\n")
    return lines[: len(rows)]


@dataclass(frozen=True)
class _Gap:
    """The gap of an exercise in its rung's file, as a half-open range of line numbers."""

    exercise: Exercise
    begin: int
    end: int


def _gaps(stage: str, file: str) -> list[_Gap]:
    """The gaps in a stage's file, in order, of the exercises that hide their answers in listings."""
    found, rung = [], discover().today(stage)
    for exercise in exercises():
        if exercise.rung == rung and exercise.gap.file == file and exercise.closes_lessons:
            words = [line.strip() for line in exercise.sources(solved=True)[file].splitlines()]
            begin = next(place for place, word in enumerate(words) if word.startswith(BEGIN))
            end = next(place for place, word in enumerate(words) if word.startswith(END))
            # 1-based line numbers in the rung's own file, which lacks the opening marker.
            found.append(_Gap(exercise, begin + 1, end))
    return sorted(found, key=lambda gap: gap.begin)


def _source(stage: str, file: str) -> tuple[str, list[str]]:
    rung = discover()[stage]
    path: Path = rung.source(file)
    if not path.is_file():
        raise LessonError(f"{rung.name} has no file {file}")
    return f"{rung.name}/{file}", path.read_text(encoding="utf-8").splitlines()


def line_of(stage: str, pattern: str, file: str = "kernel.cu") -> int:
    """The number of the only line in a stage's source that contains ``pattern``.

    Raises :class:`LessonError` unless there is exactly one.
    """
    name, lines = _source(stage, file)
    found = [number for number, text in enumerate(lines, 1) if pattern in text]
    if len(found) != 1:
        places = f" ({', '.join(map(str, found))})" if found else ""
        raise LessonError(f"{name} has {len(found)} lines{places} with {pattern!r}; a lesson needs one")
    return found[0]


def source(stage: str, first: str, last: str | None = None, *, file: str = "kernel.cu") -> Excerpt:
    """The lines of a stage's source from the one that contains ``first`` to the next that contains ``last``.

    ``first`` must occur in exactly one line; without ``last``, only that line is shown. Gaps of unsolved
    exercises are closed.

    Raises :class:`LessonError`.
    """
    name, lines = _source(stage, file)
    begin = line_of(stage, first, file)
    end = begin
    if last is not None:
        end = next((number for number, text in enumerate(lines, 1) if number >= begin and last in text), 0)
        if not end:
            raise LessonError(f"{name} has no line with {last!r} after line {begin}")
    return Excerpt(name, tuple(_rows(lines, begin, end, _gaps(stage, file))))


def _rows(lines: Sequence[str], begin: int, end: int, gaps: Sequence[_Gap]) -> Iterator[Row]:
    number = begin
    while number <= end:
        gap = next((gap for gap in gaps if gap.begin <= number < gap.end), None)
        if gap is None:
            yield Row(str(number), lines[number - 1])
            number += 1
        else:
            behind = min(gap.end, end + 1)
            yield from _gap_rows(gap, number, lines[number - 1 : behind - 1])
            number = behind


def _gap_rows(gap: _Gap, first: int, own: Sequence[str]) -> Iterator[Row]:
    """Yields the gap's task or, if it is solved, the student's lines and the rung's."""
    name, goal = gap.exercise.name, gap.exercise.gap.goal
    indent = own[0][: len(own[0]) - len(own[0].lstrip())]
    written = _solution(gap.exercise)
    if written is None:
        yield Row("...", f"{indent}// exercise {name}: {goal}")
        return
    if written != textwrap.dedent("\n".join(own)).splitlines():
        yield Row("", f"{indent}// exercise {name}, yours:")
        yield from (Row("", indent + line) for line in written)
        yield Row("", f"{indent}// and the rung's:")
    yield from (Row(str(number), line) for number, line in enumerate(own, first))


def _solution(exercise: Exercise) -> list[str] | None:
    """The student's lines if the exercise is solved, or else None."""
    workspace = Workspace()
    if not (workspace.progress(exercise).solved and workspace.is_started(exercise)):
        return None
    return gap_text(exercise, workspace.path(exercise)).splitlines()


def line_text(stage: str, number: int, text: str) -> str:
    """A line of a stage's source without indentation and comment; in an unsolved gap, the exercise's name."""
    _, lines = _source(stage, "kernel.cu")
    is_kernels = lines[number - 1 : number] == [text]
    for gap in _gaps(stage, "kernel.cu"):
        if is_kernels and gap.begin <= number < gap.end and _solution(gap.exercise) is None:
            return f"(exercise {gap.exercise.name})"
    return text.partition("//")[0].strip()


def diff(before: str, after: str) -> Excerpt:
    """The diff from one stage's kernel to another's, ignoring comments and blank lines.

    A gap of the later stage's exercises is one line unless it is solved. Raises :class:`LessonError`.
    """
    before, after = map(discover().today, (before, after))
    old, new = _code(before), _code(after)
    gaps = _gaps(after, "kernel.cu")
    _, lines = _source(after, "kernel.cu")
    matcher = difflib.SequenceMatcher(None, list(old.values()), list(new.values()), autojunk=False)
    rows: list[Row] = []
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if kind == "equal":
            continue
        rows.append(Row("", ""))
        rows += [Row("-", text) for text in list(old.values())[old_from:old_to]]
        if numbers := list(new)[new_from:new_to]:
            shown = _rows(lines, numbers[0], numbers[-1], gaps)
            rows += [Row("+" if row.mark.isdigit() else row.mark, row.text) for row in shown if _is_code(row)]
    return Excerpt(f"{before} -> {after}", tuple(rows[1:]))


def _is_code(row: Row) -> bool:
    return row.mark == "..." or (row.text.strip() != "" and not row.text.lstrip().startswith("//"))


def _code(stage: str) -> dict[int, str]:
    """The code lines of a stage's kernel by number, except those that name the stage."""
    _, lines = _source(stage, "kernel.cu")
    numbered = {number: text for number, text in enumerate(lines, 1) if stage not in text}
    return {number: text for number, text in numbered.items() if _is_code(Row("", text))}
