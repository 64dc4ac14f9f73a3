"""The check of a working copy: first the lines outside the gap, then the judge."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ladder.common import cache, files
from ladder.common.wording import language, said
from ladder.compile import EmulatorTarget, emulator_library, housekeeping, ingredients
from ladder.course.exercises.definition import Exercise
from ladder.course.exercises.gap_rules import broken_rule
from ladder.course.exercises.judge import for_its_cases, judge
from ladder.course.exercises.markers import (
    Change,
    fill_gap,
    gap_text,
    known_sources,
    marked_exercise,
    other_files,
    source_changes,
    source_names,
    text_before_gap,
)
from ladder.course.exercises.programs import judge_program
from ladder.course.exercises.reading import get_exercise
from ladder.course.exercises.verdict import Remark, Verdict
from ladder.course.exercises.workspace import Workspace, write_working_copy
from ladder.stages import include_directory

_SHOWN_CHANGES = 5


def check_text(name: str, text: str, folder: Path | None = None) -> Verdict:
    """Puts ``text`` into the gap of the exercise ``name`` and checks it, for cells of notebooks.

    Writes it into the working copy in ``folder``, by default the nearest my_exercises/, which is started if
    necessary. So the command line can continue from there, and knows what is solved.

    Raises :class:`ExerciseError` for an unknown name or missing markers; :class:`LadderError` if the folder
    cannot be written.
    """
    exercise, workspace = get_exercise(name), Workspace(folder, may_be_new=True)
    if not workspace.is_started(exercise):
        workspace.start(exercise)
    fill_gap(exercise, workspace.path(exercise), text)
    verdict = check(workspace, exercise)
    workspace.keep_try(exercise, solved=verdict.passed)
    return verdict


def check_gap(exercise: Exercise, text: str) -> Verdict:
    """Checks the exercise with ``text`` in the gap, without a working copy."""
    with tempfile.TemporaryDirectory() as folder:
        write_working_copy(exercise, Path(folder), solved=False)
        fill_gap(exercise, Path(folder), text)
        sources = {name: Path(folder, name).read_bytes() for name in known_sources(exercise)}
    return check_sources(exercise, sources, shown_as=Path(exercise.name))


def judge_folder(exercise: Exercise, folder: Path) -> Verdict:
    """Judges the working copy in ``folder`` without checking the lines outside the markers."""
    if exercise.rung is None:
        return judge_program(exercise, folder / exercise.main_file)
    stage = replace(exercise.stage(), name=exercise.name, path=folder)
    return judge(exercise, for_its_cases(exercise, stage))


def check(workspace: Workspace, exercise: Exercise) -> Verdict:
    """Checks the working copy. Raises :class:`ExerciseError` if there is none."""
    workspace.require_started(exercise)
    folder = workspace.path(exercise)
    sources = {
        name: path.read_bytes() for name in source_names(exercise) if (path := folder / name).is_file()
    }
    if workspace.is_outdated(exercise) and source_changes(exercise, folder):
        text = said("This exercise has changed since you began it.")
        return Verdict(exercise, [Remark("lines", text, (_reset(exercise),))])
    verdict = check_sources(exercise, sources, shown_as=folder)
    if not any(finding.kind == "lines" for finding in verdict.findings):
        verdict.unused_files = [name for name in other_files(exercise, folder) if name[0] != "."]
    return verdict


def check_sources(exercise: Exercise, sources: Mapping[str, bytes], shown_as: Path | None = None) -> Verdict:
    """Checks the files of a working copy, by name; a file that is missing there is a changed line.

    They are judged in a folder of the cache that holds nothing else, since a compiler might prefer other
    files to the project's. The verdict names ``shown_as`` in place of that folder.
    """
    if other := _not_of(exercise, sources.get(exercise.gap.file, b"")):
        return Verdict(exercise, [Remark("file", other, (_reset(exercise),))])
    folder = _folder_of(exercise, sources)
    changes = source_changes(exercise, folder)
    if changes:
        return Verdict(exercise, [Remark("lines", _changes_text(changes), (_reset(exercise),))])
    if exercise.rung is None and (
        rule := broken_rule(gap_text(exercise, folder), text_before_gap(exercise, folder))
    ):
        return Verdict(exercise, [Remark("gap", rule)])
    verdict = judge_folder(exercise, folder)
    if shown_as is not None:
        verdict.findings = [one.elsewhere(str(folder), str(shown_as)) for one in verdict.findings]
    return verdict


def _not_of(exercise: Exercise, handed_in: bytes) -> str:
    """What the file with the gap is instead of the exercise's; "" if it may be the exercise's."""
    file = exercise.gap.file
    if not handed_in.strip():
        return said("{file} is missing or empty. Hand in the file with your lines.", file=file)
    if b"\0" in handed_in:
        return said("{file} is not text. Hand in CUDA source.", file=file)
    other = marked_exercise(handed_in.decode("utf-8", "replace"))
    if other is not None and other.gap.goal != exercise.gap.goal:
        return said(
            "{file} belongs to {other}. Hand in the file of {name}.",
            file=file,
            other=other.name,
            name=exercise.name,
        )
    return ""


def _folder_of(exercise: Exercise, sources: Mapping[str, bytes]) -> Path:
    """A folder with these sources alone; the same ones are always in the same folder."""
    digest = cache.digest(part for item in sorted(sources.items()) for part in item)
    folder = cache.made_of(housekeeping.builds() / f"{exercise.name}-alone-{digest}", sources)
    housekeeping.mark_used(folder)
    return folder


def verdict_key(exercise: Exercise, sources: Mapping[str, bytes]) -> str:
    """A digest of all that the verdict on these sources depends on, without building them."""
    parts: list[str | bytes] = [harness_key(exercise.arch), repr(exercise)]
    for name, handed_in in sorted(sources.items()):
        parts += [name, handed_in]
    texts = [handed_in.decode("utf-8", "replace") for handed_in in sources.values()]
    for name, skeleton in sorted(known_sources(exercise, texts).items()):
        parts += [name, skeleton]
    return cache.digest(parts)


@functools.cache
def harness_key(arch: str) -> str:
    """A digest of all that verdicts on this virtual GPU depend on, besides sources and problems."""
    package = Path(__file__).parents[2]
    libraries = emulator_library().directory.rglob("*.so")
    paths = [*package.rglob("*.py"), *libraries, *files.walk(include_directory())]
    variables = [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("LADDER_")
    ]
    variables.append(f"language={language()}")
    contents: list[str | bytes] = [path.read_bytes() for path in sorted(paths)]
    torch = importlib.metadata.version("torch")
    return cache.digest([torch, *ingredients(EmulatorTarget(arch)), *variables, *contents])


def _changes_text(changes: Sequence[Change]) -> str:
    """Shows the first changed lines, each before and after."""
    lines = [said("Change only lines between the markers. These other lines have changed:")]
    for change in changes[:_SHOWN_CHANGES]:
        if change.line == 0:
            lines.append("  " + said("{file} is missing", file=change.file))
            continue
        lines.append(f"  {change.file}:{change.line}")
        lines.append(
            "    " + said("was  {line}", line=said("(no such line)") if change.was is None else change.was)
        )
        lines.append("    " + said("is   {line}", line=said("(gone)") if change.now is None else change.now))
    if len(changes) > _SHOWN_CHANGES:
        lines.append("  " + said("and {count} more", count=len(changes) - _SHOWN_CHANGES))
    return "\n".join(lines)


def _reset(exercise: Exercise) -> str:
    return f"ladder exercise reset {exercise.name}    " + said("(keeps your work aside)")
