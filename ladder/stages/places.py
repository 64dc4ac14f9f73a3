"""Where rungs, examples and exercises are: the project's, and the user's own."""

from __future__ import annotations

import os
from pathlib import Path

from ladder.errors import LadderError, StageError

#: The directories of the user's own rungs and of the exercises being worked on. They are found without being
#: named, in the working directory or the nearest directory above it.
OWN_STAGES = "my_rungs"
OWN_EXERCISES = "my_exercises"


def root() -> Path:
    """The project's own rungs: the repository's in an editable install, else the copy in the wheel.

    LADDER_STAGES_ROOT replaces them by another folder, such as one with mutants of the rungs.
    """
    if instead := os.environ.get("LADDER_STAGES_ROOT"):
        return Path(instead)
    package = Path(__file__).resolve().parent.parent
    candidates = (package.parent / "stages", package / "_stages")
    for candidate in candidates:
        if (candidate / "include" / "ladder" / "problem.h").is_file():
            return candidate
    raise LadderError(
        f"the stages are in neither {candidates[0]} nor {candidates[1]}",
        "Install the package again: make compare",
    )


def exercises_root() -> Path:
    """The project's exercises: the repository's in an editable install, else the copy in the wheel."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package.parent / "exercises", package / "_exercises")
    for candidate in candidates:
        if candidate.is_dir() and next(candidate.glob("*/exercise.toml"), None):
            return candidate
    raise LadderError(
        f"the exercises are in neither {candidates[0]} nor {candidates[1]}",
        "Install the package again: make compare",
    )


def examples_root() -> Path | None:
    """The project's examples, kernels of other operations: the repository's, or the copy in the wheel."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package.parent / "examples", package / "_examples")
    return next((candidate for candidate in candidates if candidate.is_dir()), None)


def include_directory() -> Path:
    """The directory of the headers that all rungs share."""
    return root() / "include"


def own_folder(name: str) -> Path | None:
    """Finds the folder of that name in the working directory or the nearest directory above it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory has been deleted
        return None
    return next((folder / name for folder in (here, *here.parents) if (folder / name).is_dir()), None)


def require_own(folder: Path) -> None:
    """Raises :class:`StageError` unless the user owns the folder: its code would run without being named."""
    if not is_users(folder):
        raise of_somebody_else(folder)


def is_users(folder: Path) -> bool:
    return folder.stat().st_uid == os.getuid()


def of_somebody_else(folder: Path) -> StageError:
    return StageError(
        f"{folder} belongs to somebody else, and what is in it was not run",
        "Copy it into a folder of yours, or name it: rungs by LADDER_STAGES, exercises by --folder.",
    )
