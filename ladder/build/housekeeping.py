"""Limits the cache of builds: the least recently used go first. Builds used within a day stay, however large
the cache is, and so do those that a running process is making.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ladder.common import cache, files

#: The most that all builds together may take.
MOST_BYTES = 2_000_000_000
_IN_USE_S = 24 * 3600.0
#: Files of no size: locks, and lists of a program's headers.
_SMALL_S = 60 * 24 * 3600.0


@dataclass(frozen=True)
class _Build:
    path: Path
    used: float
    bytes: int


def builds() -> Path:
    """The directory of all that was compiled."""
    return cache.root() / "build"


def mark_used(build: Path) -> None:
    """Marks a build as used now."""
    with suppress(OSError):  # a cache that can only be read
        os.utime(build)


def size() -> int:
    """Bytes of all builds."""
    return sum(build.bytes for build in _all())


def tidy() -> None:
    """Removes what was left unfinished, and builds beyond :data:`MOST_BYTES`, least recently used first."""
    now = time.time()
    for directory in (cache.root(), builds()):
        cache.sweep(directory)
    found = sorted(_all(), key=lambda build: build.used)
    excess = sum(build.bytes for build in found) - MOST_BYTES
    for build in found:
        if excess <= 0 or now - build.used < _IN_USE_S:
            break
        with suppress(OSError):
            if build.path.stat().st_mtime != build.used:
                continue
            # Renamed first, so that nobody finds a part of it.
            doomed = build.path.with_name(f".{build.path.name}-unused")
            build.path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            excess -= build.bytes
    for path in builds().glob("*"), builds().glob(".*.lock"):
        _remove_small(path, now)


def _remove_small(paths: Iterator[Path], now: float) -> None:
    for path in paths:
        with suppress(OSError):
            if path.is_file() and now - path.stat().st_mtime > _SMALL_S:
                path.unlink()


def _all() -> Iterator[_Build]:
    if not builds().is_dir():
        return
    for path in builds().iterdir():
        with suppress(OSError):
            if path.is_dir() and not path.name.startswith("."):
                yield _Build(path, path.stat().st_mtime, files.total_bytes(path))
