"""Files named by the user: checked before work begins, and written atomically."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ladder.errors import LadderError

#: Of the files that a compiler reads.
SOURCE_SUFFIXES = {".cu", ".cuh", ".h", ".hpp", ".inl", ".inc", ".cpp", ".cc"}
#: Absent from Python's mmap before 3.13: the system need not be able to back all of the memory.
MAP_NORESERVE = 0x4000


def require_file(path: Path, endings: Sequence[str] = ()) -> None:
    """Raises :class:`LadderError` unless ``path`` is a readable file with one of the suffixes ``endings``."""
    if path.is_dir():
        raise LadderError(f"{path} is a directory", "Name a file.")
    if not path.exists():
        raise LadderError(f"there is no file {path}")
    if endings and path.suffix not in endings:
        raise LadderError(
            f"{path} is no {endings[0]} file", f"Its name ends in none of {', '.join(endings)}."
        )
    if not os.access(path, os.R_OK):
        raise LadderError(f"cannot read {path}: permission denied")


def require_target(path: Path) -> None:
    """Raises :class:`LadderError` unless ``path`` can be written. Leaves an existing file unchanged."""
    parent = path.parent
    if path.is_dir():
        raise LadderError(f"cannot write {path}: it is a directory", "Name a file.")
    if not parent.is_dir():
        what = f"{parent} is no directory" if parent.exists() else f"there is no directory {parent}"
        raise LadderError(f"cannot write {path}: {what}")
    try:
        if not path.exists():
            path.touch(exist_ok=False)
            path.unlink()
        elif path.is_file():  # opening and closing a pipe would signal the end of the text to its reader
            path.open("ab").close()
    except OSError as error:
        raise _refusal(path, error) from error


def write(path: Path, data: bytes) -> None:
    """Writes ``path`` atomically. Raises :class:`LadderError`."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a terminal
            path.write_bytes(data)
            return
        replace(path.resolve(), data)
    except OSError as error:
        raise _refusal(path, error) from error


def replace(path: Path, data: bytes) -> None:
    """Replaces the contents of ``path`` atomically and keeps its permissions. Raises OSError."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_ident()}")
    try:
        temporary.write_bytes(data)
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def expanded(path: str | Path) -> Path:
    """Expands ~ and returns the absolute path. Raises :class:`LadderError` if there is no home directory."""
    try:
        return Path(path).expanduser().resolve()
    except RuntimeError:
        raise LadderError(f"there is no home directory for {path}", "Write the whole path.") from None


def walk(directory: Path) -> Iterator[Path]:
    """Yields all files below ``directory``, skipping what is unreadable or vanishes meanwhile."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                yield path


def total_bytes(directory: Path) -> int:
    """The size of all files below ``directory``, except files that vanish meanwhile."""
    total = 0
    for path in walk(directory):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def _refusal(path: Path, error: OSError) -> LadderError:
    return LadderError(f"cannot write {path}: {error.strerror or error}")
