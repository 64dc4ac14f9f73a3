"""What a class hands in: a folder with one folder per student. Nothing outside a student's folder is read."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from ladder.course.exercises import Exercise, known_sources, source_names
from ladder.errors import LadderError
from ladder.stages import OWN_EXERCISES

#: Sources are pages of text.
MOST_BYTES = 1 << 20
#: By one of these a working copy or a rung is recognised.
MAIN_FILES = ("kernel.cu", "program.cu")


class SubmissionError(LadderError):
    """Something that was handed in is missing, unreadable, or outside the student's folder."""


@dataclass(frozen=True)
class Submission:
    """The folder of one student."""

    student: str
    folder: Path

    def read(self, place: Path) -> bytes:
        """The contents of a file of this folder. Raises :class:`SubmissionError`."""
        name = f"{self.student}/{place.relative_to(self.folder)}"
        try:
            found = place.resolve(strict=True)
            about = found.stat()
            if not found.is_relative_to(self.folder.resolve()):
                raise SubmissionError(f"{name} is a link out of the student's folder")
            if not stat.S_ISREG(about.st_mode):
                raise SubmissionError(f"{name} is no file")
            if about.st_size > MOST_BYTES:
                raise SubmissionError(f"{name} has {about.st_size:,} bytes, more than {MOST_BYTES:,}")
            return found.read_bytes()
        except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
            raise SubmissionError(
                f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error

    @property
    def work(self) -> Path:
        """The folder of the working copies: ``my_exercises`` if it is there, or the student's folder."""
        own = self.folder / OWN_EXERCISES
        return own if own.is_dir() else self.folder

    def handed_in(self) -> list[str]:
        """The names of the folders that hold a kernel or a program. Raises :class:`SubmissionError`."""
        try:
            if self.folder.is_symlink() or not self.work.resolve().is_relative_to(self.folder.resolve()):
                raise SubmissionError(f"{self.student} is a link to another folder")
            places = [place for place in self.work.iterdir() if place.name[0] not in "._"]
        except OSError as error:
            raise SubmissionError(f"{self.student} cannot be read: {error.strerror}") from error
        return sorted(place.name for place in places if any(_is_named(place / name) for name in MAIN_FILES))

    def lone_file(self) -> Path | None:
        """The kernel or program that was handed in without the folder of its exercise, if there is one."""
        return next((self.work / name for name in MAIN_FILES if _is_named(self.work / name)), None)

    def others(self) -> list[str]:
        """The names of what was handed in besides. Raises :class:`OSError`."""
        return sorted(place.name for place in self.work.iterdir() if place.name[0] != ".")

    def sources(self, exercise: Exercise) -> dict[str, bytes]:
        """The exercise's files as they were handed in, by name. Raises :class:`SubmissionError`.

        Files that were not handed in, without the gap, are the exercise's own.
        """
        folder = self.work / exercise.name
        if not folder.is_dir():
            folder = self.work
        found = {
            name: self.read(folder / name) for name in source_names(exercise) if _is_named(folder / name)
        }
        texts = [content.decode("utf-8", "replace") for content in found.values()]
        own = known_sources(exercise, texts)
        return {name: text.encode() for name, text in own.items() if name != exercise.gap.file} | found


def _is_named(path: Path) -> bool:
    """Whether something has this name, be it a link to nothing."""
    try:
        path.lstat()
    except OSError:
        return False
    return True


def submissions(folder: Path) -> list[Submission]:
    """One for each folder in ``folder``, except those whose names begin with ``.`` or ``_``.

    Raises :class:`SubmissionError` if there is none.
    """
    if not folder.is_dir():
        what = f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}"
        raise SubmissionError(what, "Name the one that holds a folder for each student.")
    try:
        places = sorted(place for place in folder.iterdir() if place.name[0] not in "._")
    except OSError as error:
        raise SubmissionError(f"{folder} cannot be read: {error.strerror}") from error
    found = [Submission(place.name, place) for place in places if place.is_dir()]
    if not found:
        raise SubmissionError(
            f"{folder} holds no folders", "Put what each student hands in into one of its own."
        )
    return found
