"""A student's workspace: one folder per exercise, and a record of hints shown and checks passed.

The folder of an exercise on a rung is a stage, so that ``ladder lines``, ``ladder explain`` and other
commands accept its name.
"""

from __future__ import annotations

import json
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ladder.common import cache, files
from ladder.common.wording import said
from ladder.course.exercises.definition import PICTURE, Exercise
from ladder.course.exercises.markers import closable
from ladder.course.exercises.table import ExerciseError
from ladder.course.exercises.wording import worded
from ladder.errors import LadderError
from ladder.stages import OWN_EXERCISES, copy_sources, own_folder, require_own, stage_toml

_RECORD = ".progress.json"
_BACKUPS = ".backups"


@dataclass
class Progress:
    """The progress of an exercise. ``tries`` are the checks up to the first that passed; ``made_from`` is a
    digest of the skeleton that it was started from.
    """

    hints: int = 0
    solved: bool = False
    made_from: str = ""
    tries: int = 0


class Workspace:
    """One student's exercises, in ``folder`` or by default the nearest my_exercises/.

    A given folder must exist, unless :meth:`start` is going to make it (``may_be_new``). Raises
    :class:`LadderError`.
    """

    def __init__(self, folder: Path | None = None, *, may_be_new: bool = False) -> None:
        found = None if folder else own_folder(OWN_EXERCISES)
        if found:
            require_own(found)
        self.folder = files.expanded(folder or found or Path.cwd() / OWN_EXERCISES)
        if self.folder.exists() and not self.folder.is_dir():
            raise LadderError(
                said("{folder} is no folder", folder=self.folder),
                said("Name the one that holds the exercises."),
            )
        if folder is not None and not may_be_new and not self.folder.exists():
            raise LadderError(
                said("there is no folder {folder}", folder=self.folder),
                said(
                    "To create it: {command}",
                    command=f"ladder exercise start --folder {shlex.quote(str(folder))}",
                ),
            )
        self._record: dict[str, Progress] = {}
        path = self.folder / _RECORD
        if path.exists():
            try:
                self._record = {name: Progress(**one) for name, one in json.loads(path.read_text()).items()}
            except (OSError, ValueError, TypeError, AttributeError) as error:
                raise LadderError(
                    said("{path} cannot be read: {error}", path=path, error=error),
                    said("Delete it: your kernels stay; only the record of hints and of checks passed goes."),
                ) from error

    def path(self, exercise: Exercise) -> Path:
        return self.folder / exercise.name

    def is_started(self, exercise: Exercise) -> bool:
        return (self.path(exercise) / exercise.main_file).is_file()

    def progress(self, exercise: Exercise) -> Progress:
        return self._record.get(exercise.name, Progress())

    def require_started(self, exercise: Exercise) -> None:
        """Raises :class:`ExerciseError` if there is no working copy."""
        if not self.is_started(exercise):
            raise ExerciseError(
                said("{name} has not been started in {folder}", name=exercise.name, folder=self.folder),
                f"ladder exercise start {exercise.name}",
            )

    def start(self, exercise: Exercise) -> Path:
        """Makes the working copy. Raises :class:`ExerciseError` if it exists."""
        final = self.path(exercise)
        if final.exists():
            raise ExerciseError(
                said("{path} is there already", path=final),
                said("To begin anew: {command}", command=f"ladder exercise reset {exercise.name}"),
            )
        with _writing(), cache.new_directory(final) as directory:
            write_working_copy(exercise, directory, solved=False, closed=self._unsolved(exercise))
        kept = self.progress(exercise)
        self._set(exercise, replace(kept, made_from=skeleton_digest(exercise)))
        return final

    def reset(self, exercise: Exercise) -> Path | None:
        """Starts over; returns the place to which earlier work, if any, has been moved.

        The folder itself stays, since it may be a shell's working directory.
        """
        path = self.path(exercise)
        if not path.exists():
            self.start(exercise)
            return None
        number = 1
        while (self.folder / _BACKUPS / f"{exercise.name}-{number}").exists():
            number += 1
        backup = self.folder / _BACKUPS / f"{exercise.name}-{number}"
        with _writing(), cache.guarded(self.folder):
            shutil.copytree(path, backup)
            for entry in path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            write_working_copy(exercise, path, solved=False, closed=self._unsolved(exercise))
        self._set(exercise, Progress(made_from=skeleton_digest(exercise)))
        return backup

    def _unsolved(self, exercise: Exercise) -> list[Exercise]:
        """The exercises on the same rung whose solutions a working copy must not show yet."""
        return [one for one in closable(exercise) if not self.progress(one).solved]

    def next_hint(self, exercise: Exercise) -> tuple[int, str]:
        """Returns (number, text) of the next hint, and the last one again when there are no more."""
        progress = self.progress(exercise)
        number = min(progress.hints + 1, len(exercise.hints))
        self._set(exercise, replace(progress, hints=number))
        return number, worded(exercise).hints[number - 1]

    def keep_try(self, exercise: Exercise, *, solved: bool) -> None:
        """Records a check, unless one has passed before."""
        progress = self.progress(exercise)
        if not progress.solved:
            self._set(exercise, replace(progress, solved=solved, tries=progress.tries + 1))

    def _set(self, exercise: Exercise, progress: Progress) -> None:
        self._record[exercise.name] = progress
        record = {name: asdict(one) for name, one in sorted(self._record.items())}
        with _writing():
            cache.write_text(self.folder / _RECORD, json.dumps(record, indent=1) + "\n")

    def is_outdated(self, exercise: Exercise) -> bool:
        """Whether the exercise has changed since the working copy was made."""
        made_from = self.progress(exercise).made_from
        return bool(made_from) and made_from != skeleton_digest(exercise)


@contextmanager
def _writing() -> Iterator[None]:
    """Writes the folder like the cache, but an error advises to choose another folder."""
    try:
        yield
    except cache.CacheError as error:
        raise LadderError(error.message, said("Name a folder that can be written: --folder DIR")) from error


def write_working_copy(
    exercise: Exercise, directory: Path, *, solved: bool, closed: Sequence[Exercise] = ()
) -> None:
    """Fills an empty directory with the skeleton, or the solution, and the task.

    It is a stage if the exercise has a rung, and a program otherwise. The lines of the exercises in
    ``closed`` stand in files of their own.
    """
    if exercise.rung is not None:
        stage = exercise.stage()
        copy_sources(stage.path, directory)
        toml = stage_toml(stage, exercise.title, f"An exercise on {stage.name}")
        (directory / "stage.toml").write_text(toml, encoding="utf-8")
    for file, text in exercise.sources(solved=solved, closed=closed).items():
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text(text, encoding="utf-8")
    shown = worded(exercise)
    paragraphs = [textwrap.fill(one, 100, break_on_hyphens=False) for one in shown.task.split("\n\n")]
    text = "\n\n".join([f"# {shown.title}", *paragraphs]) + "\n"
    if (drawing := exercise.drawing()) is not None:
        (directory / PICTURE).write_text(drawing.svg(), encoding="utf-8")
        text += f"\n![{drawing.alt}]({PICTURE})\n"
    (directory / "README.md").write_text(text, encoding="utf-8")


def skeleton_digest(exercise: Exercise) -> str:
    return cache.digest(part for item in sorted(exercise.sources(solved=False).items()) for part in item)
