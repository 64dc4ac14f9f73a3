"""The check of a working copy: first the lines outside the gap, then the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ladder.build import housekeeping
from ladder.common import cache
from ladder.exercises.definition import Exercise
from ladder.exercises.judge import for_its_cases, judge
from ladder.exercises.markers import Change, fill_gap, known_sources, other_files, source_changes
from ladder.exercises.programs import judge_program
from ladder.exercises.reading import get_exercise
from ladder.exercises.verdict import Remark, Verdict
from ladder.exercises.workspace import Workspace
from ladder.stages import read_stage

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
    if verdict.passed:
        workspace.set_solved(exercise)
    return verdict


def judge_folder(exercise: Exercise, folder: Path) -> Verdict:
    """Judges the working copy in ``folder`` without checking the lines outside the markers."""
    if exercise.rung is None:
        return judge_program(exercise, folder / exercise.main_file)
    return judge(exercise, for_its_cases(exercise, read_stage(folder)))


def check(workspace: Workspace, exercise: Exercise) -> Verdict:
    """Checks the working copy. Raises :class:`ExerciseError` if there is none."""
    workspace.require_started(exercise)
    folder = workspace.path(exercise)
    changes = source_changes(exercise, folder)
    if not changes:
        return _judged_alone(workspace, exercise, folder)
    if workspace.is_outdated(exercise):
        text = "This exercise has changed since you began it."
        return Verdict(exercise, [Remark("lines", text, (_reset(exercise),))])
    return Verdict(exercise, [Remark("lines", _changes_text(changes), (_reset(exercise),))])


def _judged_alone(workspace: Workspace, exercise: Exercise, folder: Path) -> Verdict:
    """Judges the working copy: where it is or, if there are other files, which a compiler might prefer to the
    project's, a copy without them.
    """
    others = other_files(exercise, folder)
    if not others:
        return _judged(workspace, exercise, folder)
    texts = {file: (folder / file).read_bytes() for file in known_sources(exercise)}
    digest = cache.digest(part for item in texts.items() for part in item)
    alone = housekeeping.builds() / f"{exercise.name}-alone-{digest}"
    if not alone.is_dir():
        with cache.new_directory(alone) as directory:
            for file, text in texts.items():
                (directory / file).parent.mkdir(exist_ok=True)
                (directory / file).write_bytes(text)
    housekeeping.mark_used(alone)
    verdict = _judged(workspace, exercise, alone)
    verdict.unused_files = [name for name in others if not name.startswith(".")]
    verdict.findings = [
        replace(one, text=one.text.replace(str(alone), str(folder))) for one in verdict.findings
    ]
    return verdict


def _judged(workspace: Workspace, exercise: Exercise, folder: Path) -> Verdict:
    if exercise.rung is None:
        return judge_program(exercise, folder / exercise.main_file)
    return judge(exercise, for_its_cases(exercise, replace(workspace.stage(exercise), path=folder)))


def _changes_text(changes: Sequence[Change]) -> str:
    """Shows the first changed lines, each before and after."""
    lines = ["Only the lines between the markers are yours; others are not as they were:"]
    for change in changes[:_SHOWN_CHANGES]:
        if change.line == 0:
            lines.append(f"  {change.file} is missing")
            continue
        lines.append(f"  {change.file}:{change.line}")
        lines.append(f"    was  {change.was}" if change.was is not None else "    was  (no such line)")
        lines.append(f"    is   {change.now}" if change.now is not None else "    is   (gone)")
    if len(changes) > _SHOWN_CHANGES:
        lines.append(f"  and {len(changes) - _SHOWN_CHANGES} more")
    return "\n".join(lines)


def _reset(exercise: Exercise) -> str:
    return f"ladder exercise reset {exercise.name}    (keeps your work aside)"
