"""Which tests are nearest to changed files: tests mirror the folders of what they test.

A selector is a file's path, or ``path::word+word``: the tests of that file whose names contain all words.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ladder.stages import discover

#: Where a change leaves its main branch; of those that exist, the nearest common ancestor counts.
MAIN_BRANCHES = ("main", "origin/main", "upstream/main")
STEPS, MATRIX = "tests/stages/test_steps.py", "stages/test_matrix.py"
PAGES = ("tests/docs/test_translations.py", "tests/tools/measure/test_tables.py")
EXERCISES, LESSONS = "tests/course/exercises/test_exercises.py", "tests/course/lessons/test_notebooks.py"
#: A rung that runs most of the emulator in seconds.
SMOKE = f"{MATRIX}::test_one_kernel+{discover().today('v3')}"
_KEY = r'^{} = "(\w+)"'
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Nearest:
    """The tests of one changed file: what to run first, and what to run if time is left."""

    first: tuple[str, ...] = ()
    then: tuple[str, ...] = ()


def git(root: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails, as outside a checkout."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def main_commit(root: Path) -> str | None:
    """The commit at which HEAD left the main branch; HEAD itself on that branch."""
    known = [name for name in MAIN_BRANCHES if git(root, "rev-parse", "-q", "--verify", name)]
    return (git(root, "merge-base", "HEAD", *known) or "").strip() or None if known else None


def changed_files(root: Path, base: str) -> list[str]:
    """Paths that differ from that commit, committed or not, with new and deleted ones."""
    differ = git(root, "diff", "--name-only", "--no-renames", "-z", base, "--") or ""
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z") or ""
    return sorted({name for name in (differ + new).split("\0") if name})


def nearest(root: Path, path: str) -> Nearest:
    """The tests of a changed file; none for a file that no folder of tests mirrors."""
    parts = PurePosixPath(path).parts
    if _is_test(path):
        return Nearest(first=(path,) if (root / path).is_file() else ())
    if rung := _rung_of(root, path):
        return _tests_of_rung(root, rung, path)
    if parts[:2] == ("stages", "include"):
        return _tests_of_header(root, path)
    if parts[0] == "exercises" and len(parts) > 2:
        return Nearest(first=(f"{EXERCISES}::{parts[1]}",))
    if parts[0] == "notebooks" and path.endswith((".py", ".ipynb")):
        lesson = PurePosixPath(path).stem
        return Nearest(first=(f"{LESSONS}::{lesson}",), then=(f"notebooks/{lesson}.ipynb",))
    if path.endswith(".md"):
        return Nearest(first=PAGES)
    found = _mirrored(root, PurePosixPath(path))
    return Nearest(found.first, (*found.then, SMOKE)) if parts[0] == "emulator" else found


def _is_test(path: str) -> bool:
    return bool(re.search(r"(^|/)test_[^/]*\.py$", path))


def _rung_of(root: Path, path: str) -> Path | None:
    """The folder, relative to the root, of the rung or example that a file belongs to."""
    folders = PurePosixPath(path).parents
    return next((Path(one) for one in folders if (root / one / "stage.toml").is_file()), None)


def _tests_of_rung(root: Path, rung: Path, path: str) -> Nearest:
    """One kernel, its step and its children's, its page; then its own tests and its exercises."""
    if path.endswith(".md"):
        return Nearest(first=(f"{STEPS}::{rung.name}", *PAGES))
    children = _named(root, "**/stage.toml", "before", rung.name)
    exercises = _named(root / "exercises", "*/exercise.toml", "rung", rung.name)
    own = sorted(str(one.relative_to(root)) for one in (root / rung).glob("test_*.py"))
    return Nearest(
        first=(
            f"{MATRIX}::test_one_kernel+{rung.name}",
            *(f"{STEPS}::{name}" for name in [rung.name, *children]),
        ),
        then=(*own, *(f"{EXERCISES}::{name}" for name in exercises)),
    )


def _named(root: Path, pattern: str, key: str, value: str) -> list[str]:
    """The folders of the files that give this key that value."""
    line = re.compile(_KEY.format(key), re.MULTILINE)
    files = sorted((root / "stages").glob(pattern) if key == "before" else root.glob(pattern))
    return [file.parent.name for file in files if value in line.findall(file.read_text(encoding="utf-8"))]


def _tests_of_header(root: Path, path: str) -> Nearest:
    """The functions' lengths and the mirrored tests; then one kernel of the rung with that header and the
    fewest others.
    """
    included = {one.parent.name: _headers(root, one) for one in (root / "stages").glob("**/kernel.cu")}
    users = [(len(headers), name) for name, headers in included.items() if root / path in headers]
    kernel = [f"{MATRIX}::test_one_kernel+{min(users)[1]}"] if users else []
    mirrored = _mirrored(root, PurePosixPath(path))
    step = f"{STEPS}::test_functions_fit_a_page+{PurePosixPath(path).name}"
    return Nearest((step, *mirrored.first, *kernel), mirrored.then)


def _headers(root: Path, source: Path) -> frozenset[Path]:
    """The headers that a source includes, and those that they include."""
    found: set[Path] = set()
    pending = [source]
    while pending:
        file = pending.pop()
        names = _INCLUDE.findall(file.read_text(encoding="utf-8"))
        named = {folder / name for folder in (root / "stages/include", file.parent) for name in names}
        pending += (new := {one for one in named if one.is_file()} - found)
        found |= new
    return frozenset(found)


def _mirrored(root: Path, path: PurePosixPath) -> Nearest:
    """The tests in the folder that mirrors the file's own; first those that have the file's name."""
    folder = _mirror(root, path.parts[:-1])
    if folder is None:
        return Nearest()
    tests = sorted(str(one.relative_to(root)) for one in folder.glob("**/test_*.py"))
    first = [name for name in tests if _same_subject(PurePosixPath(name).stem, path.stem)]
    return Nearest(tuple(first), tuple(name for name in tests if name not in first))


def _mirror(root: Path, folders: Sequence[str]) -> Path | None:
    """The folder below tests/ whose path ends as the file's does, for the longest part of the file's path."""
    for end in range(len(folders), 0, -1):
        for start in range(end):
            folder = root / "tests" / Path(*folders[start:end])
            if folder.is_dir():
                return folder
    return None


def _same_subject(test: str, stem: str) -> bool:
    """``test_instructions_convert`` is about ``convert`` and ``convert_integers``."""
    words = stem.split("_")
    return words[0] in test.split("_") if len(words[0]) > 2 else stem in test


def selectors(found: Iterable[Nearest]) -> Iterator[str]:
    """Of all changed files: what comes first before what comes then, each once."""
    tests = [*found]
    yield from dict.fromkeys(
        [one for each in tests for one in each.first] + [one for each in tests for one in each.then]
    )
