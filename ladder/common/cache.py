"""The user's cache directory: compiler, built extensions, counted rows.

Anything under its final name is complete: files and directories are made under a temporary name and then
renamed. This module uses the standard library only, so that the compiler can be fetched before anything is
installed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ladder.common import files
from ladder.errors import CacheError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOTDIR: "a file stands where a directory is needed",
    errno.EEXIST: "a file stands where a directory is needed",
    errno.EISDIR: "a directory stands where a file is needed",
}

#: A file in an unfinished directory, locked by the process that fills the directory.
_OWNER = ".owner"
_NEW_S = 60.0
_SURELY_ABANDONED_S = 24 * 3600.0


def root() -> Path:
    """The cache directory: ``$XDG_CACHE_HOME/flash-ladder``, or ``~/.cache/flash-ladder``."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base).absolute() if base else Path.home() / ".cache") / "flash-ladder"
    except RuntimeError as error:  # neither $HOME nor a passwd entry
        raise CacheError(
            "there is no home directory for the cache",
            "Set XDG_CACHE_HOME to a directory that can be written.",
        ) from error


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turns an OSError while writing ``path`` into a :class:`CacheError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        raise _refusal(path, error) from error


def _refusal(path: Path, error: OSError) -> CacheError:
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return CacheError(
        f"cannot write {path}: {reason}",
        "Free some space, or set XDG_CACHE_HOME to a directory that can be written.",
    )


def _make_parent(path: Path) -> None:
    """Makes the parent directory of ``path``. Raises :class:`CacheError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _refusal(path, error) from error


@contextmanager
def unfinished(near: Path) -> Iterator[Path]:
    """Yields an empty directory beside ``near`` to be moved by :func:`finish`; removes it otherwise."""
    _make_parent(near)
    with guarded(near):
        temporary = Path(tempfile.mkdtemp(prefix=f".{near.name}-", dir=near.parent))
        try:
            with open(temporary / _OWNER, "w") as owner:
                with suppress(OSError):  # a file system without locks; sweep() leaves the directory alone
                    fcntl.flock(owner, fcntl.LOCK_EX)
                yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def finish(temporary: Path, final: Path) -> None:
    """Renames a directory to ``final``, unless another process has made that meanwhile."""
    temporary.chmod(0o755)
    (temporary / _OWNER).unlink(missing_ok=True)
    try:
        temporary.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not final.is_dir():
            raise


@contextmanager
def new_directory(final: Path) -> Iterator[Path]:
    """Yields an empty directory that becomes ``final`` if the block succeeds, and is removed otherwise.

    If another process has made ``final`` meanwhile, that one stays.
    """
    with unfinished(final) as temporary:
        yield temporary
        finish(temporary, final)


def sweep(directory: Path) -> None:
    """Removes the unfinished entries that killed processes left in ``directory``."""
    for path in directory.glob(".*"):
        with suppress(OSError):
            if path.is_dir() and _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(unfinished: Path) -> bool:
    age_s = time.time() - unfinished.stat().st_mtime
    owner = unfinished / _OWNER
    if not owner.exists():  # its owner file is about to be made, or has just been removed
        return age_s > _SURELY_ABANDONED_S
    if age_s < _NEW_S:
        return False
    with open(owner) as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def write_text(path: Path, text: str) -> None:
    """Writes ``path`` atomically."""
    _make_parent(path)
    with guarded(path):
        files.replace(path, text.encode("utf-8", "surrogateescape"))


def read_json(path: Path) -> object:
    """The JSON in a file; None if there is none, or it is damaged."""
    try:
        value: object = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value


@contextmanager
def lock(final: Path) -> Iterator[None]:
    """Holds a lock on making ``final``: one of several processes makes it while the others wait."""
    _make_parent(final)
    with guarded(final), open(final.parent / f".{final.name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(final: Path, fill: Callable[[Path], object]) -> Path:
    """Returns ``final``. If it does not exist, one of several processes calls ``fill`` with the directory
    that becomes it, while the others wait.
    """
    if not final.is_dir():
        with lock(final):
            if not final.is_dir():
                with new_directory(final) as directory:
                    fill(directory)
    return final


def made_of(final: Path, sources: Mapping[str, bytes]) -> Path:
    """Returns ``final``, a directory with these files by relative path, which is made once."""

    def fill(directory: Path) -> None:
        for name, text in sources.items():
            (directory / name).parent.mkdir(exist_ok=True, parents=True)
            (directory / name).write_bytes(text)

    return made_once(final, fill)


def digest(parts: Iterable[str | bytes]) -> str:
    """A short hash of a sequence of strings, which depends on where each one ends.

    Strings may be file names outside the locale's encoding.
    """
    state = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()[:20]
