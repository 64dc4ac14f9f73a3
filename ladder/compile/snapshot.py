"""Snapshots of files, to make sure that a compiler read the very contents its output is cached under."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ladder.common import cache

#: File times come from a kernel clock that ticks every 10 ms at worst and lags behind time_ns().
_CLOCK_STEP_NS = 20_000_000


@dataclass(frozen=True)
class _State:
    """Identifies a file's state. Contents alone would miss a change that was reverted."""

    inode: int
    modified_ns: int
    changed_ns: int
    contents: str


@dataclass(frozen=True)
class Snapshot:
    """The state of each file, None if unreadable, and the time just before the first was read."""

    moment_ns: int
    files: Mapping[Path, _State | None]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Snapshot:
        moment = time.time_ns()
        return cls(moment, {path: _state(path) for path in sorted(set(paths))})

    def parts(self) -> list[str]:
        """The names and contents of the files, for a hash of both."""
        return [
            part
            for path, state in self.files.items()
            for part in (str(path), state.contents if state else "unreadable")
        ]

    def changed(self, later: Snapshot) -> list[Path]:
        """The files of ``later`` that were written since this snapshot. A file that is new in ``later`` is
        judged by its timestamps.
        """

        def same(path: Path, now: _State | None) -> bool:
            if path in self.files:
                return now == self.files[path]
            if now is None:  # a name that a #line directive made up
                return True
            return max(now.modified_ns, now.changed_ns) < self.moment_ns - _CLOCK_STEP_NS

        return [path for path, now in later.files.items() if not same(path, now)]


def _state(path: Path) -> _State | None:
    try:
        about = path.stat()
        return _State(about.st_ino, about.st_mtime_ns, about.st_ctime_ns, cache.digest([path.read_bytes()]))
    except (OSError, ValueError):  # a damaged list of dependencies may hold what is no path
        return None
