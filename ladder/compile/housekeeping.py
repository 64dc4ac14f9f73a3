"""Limits the size of the build cache by evicting the least recently used builds. Builds used within the last
day, and those that a running process is making, always stay.
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

#: The most bytes that all builds together may take.
MOST_BYTES = 2_000_000_000
_IN_USE_S = 24 * 3600.0
#: How long tiny files stay: locks, lists of dependencies, and sockets that killed processes left.
_SMALL_S = 60 * 24 * 3600.0
#: Its time is that of the last :func:`tidy`, which is done so often.
_STAMP, _TIDY_S = "tidied", 3600.0


@dataclass(frozen=True)
class _Build:
    path: Path
    used: float
    bytes: int


def builds() -> Path:
    """The directory of all builds."""
    return cache.root() / "build"


def mark_used(build: Path) -> None:
    """Marks a build as just used."""
    with suppress(OSError):  # a read-only cache
        os.utime(build)


def size() -> int:
    """The size of all builds in bytes."""
    return sum(build.bytes for build in _all())


def tidy_now_and_then() -> None:
    """Calls :func:`tidy`, unless that was done within the hour: it reads the sizes of thousands of files."""
    stamp = cache.root() / _STAMP
    with suppress(OSError):
        if time.time() - stamp.stat().st_mtime < _TIDY_S:
            return
    tidy()
    with suppress(OSError):
        stamp.touch()


def tidy() -> None:
    """Removes unfinished builds, and then the least recently used ones until :data:`MOST_BYTES` suffice."""
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
            # Rename first, so that no process sees a half-deleted build.
            doomed = build.path.with_name(f".{build.path.name}-unused")
            build.path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
            excess -= build.bytes
    for paths in builds().glob("*"), builds().glob(".*.lock"), cache.root().glob("kept-*"):
        _remove_small(paths, now)


def _remove_small(paths: Iterator[Path], now: float) -> None:
    for path in paths:
        with suppress(OSError):
            if not path.is_dir() and now - path.stat().st_mtime > _SMALL_S:
                path.unlink()


def _all() -> Iterator[_Build]:
    if not builds().is_dir():
        return
    for path in builds().iterdir():
        with suppress(OSError):
            if path.is_dir() and not path.name.startswith("."):
                yield _Build(path, path.stat().st_mtime, files.total_bytes(path))
