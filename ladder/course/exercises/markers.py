"""The markers in a working copy: the text between them, and changes outside."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.common import files
from ladder.common.wording import said
from ladder.course.exercises.definition import BEGIN, END, OTHERS, PICTURE, Exercise, indented
from ladder.course.exercises.reading import exercises
from ladder.course.exercises.table import ExerciseError


@dataclass(frozen=True)
class Change:
    """A changed line outside the markers: its number in the student's file, and both texts."""

    file: str
    line: int
    was: str | None
    now: str | None


def gap_line(exercise: Exercise, directory: Path) -> int:
    """The line number of the opening marker. Raises :class:`ExerciseError` if the markers are gone."""
    return _gap_lines(exercise, directory)[1] + 1


def gap_text(exercise: Exercise, directory: Path) -> str:
    """The text between the markers, dedented.

    Raises :class:`ExerciseError` if the markers are gone.
    """
    lines, begin, end = _gap_lines(exercise, directory)
    return _moved_left(lines[begin + 1 : end])


def text_before_gap(exercise: Exercise, directory: Path) -> str:
    """The text before the first marker. Raises :class:`ExerciseError` if the markers are gone."""
    lines, begin, _ = _gap_lines(exercise, directory)
    return "\n".join(lines[:begin])


def own_lines(path: Path) -> str:
    """The numbers of the lines between the markers of a file, such as ``12-15``; "" if it has no gap."""
    begin, end = _markers(path.read_text(encoding="utf-8", errors="replace").splitlines())
    if len(begin) != 1 or len(end) != 1 or end[0] - begin[0] < 2:
        return ""
    first, last = begin[0] + 2, end[0]
    return str(first) if first == last else f"{first}-{last}"


def solution_text(exercise: Exercise) -> str:
    """The text between the markers in the solution, dedented."""
    lines = exercise.sources(solved=True)[exercise.gap.file].splitlines()
    begin, end = _markers(lines)
    return _moved_left(lines[begin[0] + 1 : end[0]])


def fill_gap(exercise: Exercise, directory: Path, text: str) -> None:
    """Puts ``text`` between the markers, indented like them.

    Raises :class:`ExerciseError` if the markers are gone.
    """
    lines, begin, end = _gap_lines(exercise, directory)
    marker = lines[begin]
    indent = marker[: len(marker) - len(marker.lstrip())]
    lines[begin + 1 : end] = indented(text, indent)
    files.write(directory / exercise.gap.file, ("\n".join(lines) + "\n").encode())


def _gap_lines(exercise: Exercise, directory: Path) -> tuple[list[str], int, int]:
    """The lines of the file with the gap, and the indices of the opening and closing markers."""
    path = directory / exercise.gap.file
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    begin, end = _markers(lines)
    if len(begin) != 1 or len(end) != 1 or begin > end:
        raise ExerciseError(
            said(
                "{path} needs exactly one line {begin}, and one line {end} below it",
                path=path,
                begin=BEGIN,
                end=END,
            ),
            f"ladder exercise reset {exercise.name}    " + said("(keeps your work aside)"),
        )
    return lines, begin[0], end[0]


def marked_exercise(text: str) -> Exercise | None:
    """The exercise whose opening marker the text has; None if that is none, or more than one."""
    lines = {line.strip() for line in text.splitlines() if line.strip().startswith(BEGIN)}
    found = [one for one in exercises() if f"{BEGIN}: {one.gap.goal}" in lines]
    return found[0] if len(found) == 1 else None


def _markers(lines: Sequence[str]) -> tuple[list[int], list[int]]:
    """The indices of all opening markers, and of all closing ones."""
    words = [line.strip() for line in lines]
    begin = [place for place, word in enumerate(words) if word.startswith(BEGIN)]
    return begin, [place for place, word in enumerate(words) if word.startswith(END)]


def _moved_left(lines: Sequence[str]) -> str:
    return "\n".join(indented("\n".join(lines)))


def source_changes(exercise: Exercise, directory: Path) -> list[Change]:
    """The differences from the skeleton outside the markers, ignoring trailing blanks."""
    changes = []
    own = [path for name in exercise.files() if (path := directory / name).is_file()]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in own]
    for file, text in known_sources(exercise, texts).items():
        path = directory / file
        if not path.is_file():
            changes.append(Change(file, 0, file, None))
            continue
        now = path.read_text(encoding="utf-8", errors="replace")
        changes += _changes(file, _outside(text), _outside(now))
    return changes


def closable(exercise: Exercise) -> list[Exercise]:
    """The exercises on the same rung whose solutions a working copy can leave out."""
    return [one for one in exercises() if exercise.closes(one)]


def known_sources(exercise: Exercise, texts: Iterable[str] = ()) -> dict[str, str]:
    """The skeleton's source files: their texts by name.

    Solutions of other exercises stand in files of their own if one of the ``texts``, the contents of a
    working copy's files, includes these.
    """
    origin = exercise.folder if exercise.rung is None else exercise.stage().path
    found = {
        str(path.relative_to(origin)): path.read_text(encoding="utf-8")
        for path in sorted(origin.rglob("*"))
        if path.suffix in (".cu", ".cuh", ".h") and path.is_file()
    }
    included = "\n".join(texts)
    others = closable(exercise) if f"{OTHERS}/" in included else []
    closed = [one for one in others if f'{_file_of(one)}"' in included]
    return {**found, **exercise.sources(solved=False, closed=closed)}


def source_names(exercise: Exercise) -> list[str]:
    """The names of all source files that a working copy may have."""
    return [*known_sources(exercise), *(_file_of(one) for one in closable(exercise))]


def _file_of(closed: Exercise) -> str:
    return f"{OTHERS}/{closed.name}.h"


def other_files(exercise: Exercise, directory: Path) -> list[str]:
    """The files in a working copy that are not the exercise's. A compiler would find a header among them."""
    known = {*source_names(exercise), "stage.toml", "README.md", PICTURE}
    names = (str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())
    return sorted(name for name in names if name not in known)


def _outside(text: str) -> list[tuple[int, str]]:
    """(number, text) of the markers and the lines outside them."""
    kept, inside = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.strip()
        if inside and word.startswith(END):
            inside = False
        if not inside:
            kept.append((number, word if word.startswith((BEGIN, END)) else line.rstrip()))
        if word.startswith(BEGIN):
            inside = True
    return kept


def _changes(file: str, was: list[tuple[int, str]], now: list[tuple[int, str]]) -> list[Change]:
    matcher = difflib.SequenceMatcher(None, [t for _, t in was], [t for _, t in now], autojunk=False)
    changes = []
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind == "equal":
            continue
        for offset in range(max(a1 - a0, b1 - b0)):
            old = was[a0 + offset][1] if a0 + offset < a1 else None
            new = now[b0 + offset][1] if b0 + offset < b1 else None
            line = now[min(b0 + offset, len(now) - 1)][0] if now else 0
            changes.append(Change(file, line, old, new))
    return changes
