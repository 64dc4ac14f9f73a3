"""Where rungs, examples and exercises are: the project's, and the user's own."""

from __future__ import annotations

import os
from pathlib import Path

from ladder.errors import LadderError, StageError

#: The directories of the user's own rungs and of the exercises being worked on. They are found without being
#: named, in the working directory or the nearest directory above it.
OWN_STAGES = "my_rungs"
OWN_EXERCISES = "my_exercises"


_PACKAGE = Path(__file__).resolve().parents[1]


def root() -> Path:
    """The project's own rungs: the repository's in an editable install, else the copy in the wheel.

    LADDER_STAGES_ROOT replaces them by another folder, such as one with mutants of the rungs.
    """
    if instead := os.environ.get("LADDER_STAGES_ROOT"):
        return Path(instead)
    return _require("stages", "include/ladder/problem.h")


def exercises_root() -> Path:
    """The project's exercises: the repository's, or the copy in the wheel."""
    return _require("exercises", "*/exercise.toml")


def examples_root() -> Path | None:
    """The project's examples, kernels of other operations: the repository's, or the copy in the wheel."""
    return _find("examples", "*/kernel.cu")


def lessons_root() -> Path:
    """The lessons as notebooks: the repository's, or the copy in the wheel."""
    return _require("notebooks", "00a_cuda.ipynb")


def results_root() -> Path:
    """The figures that were measured, as tables: the repository's, or the copy in the wheel."""
    return _require("results", "h200/speed.csv")


def is_repository() -> bool:
    """Whether the project is installed from its repository, whose files can be changed."""
    return (_PACKAGE.parent / "pyproject.toml").is_file()


def _find(name: str, contents: str) -> Path | None:
    """The folder of that name in the repository, or the wheel's copy: the one with such files."""
    return next((folder for folder in _places(name) if next(folder.glob(contents), None)), None)


def _require(name: str, contents: str) -> Path:
    folder = _find(name, contents)
    if folder is None:
        here, there = _places(name)
        raise LadderError(
            f"the {name} are in neither {here} nor {there}", "Install the package again: make compare"
        )
    return folder


def _places(name: str) -> tuple[Path, Path]:
    return _PACKAGE.parent / name, _PACKAGE / f"_{name}"


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
