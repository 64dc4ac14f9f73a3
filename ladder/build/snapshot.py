"""Files as they were at one moment, to tell whether a compiler read what its output is filed under."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ladder.common import cache

#: The kernel's clock for files moves in steps of up to 10 ms and lags behind the one that is read here.
_CLOCK_STEP_NS = 20_000_000


@dataclass(frozen=True)
class _State:
    """Tells two states of a file apart. Contents alone would miss a change that is taken back."""

    inode: int
    modified_ns: int
    changed_ns: int
    contents: str


@dataclass(frozen=True)
class Snapshot:
    """The state of each file, None for one that could not be read, and when the first was looked at."""

    moment_ns: int
    files: Mapping[Path, _State | None]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Snapshot:
        moment = time.time_ns()
        return cls(moment, {path: _state(path) for path in sorted(set(paths))})

    def parts(self) -> list[str]:
        """Names and contents, for a hash of both."""
        return [
            part
            for path, state in self.files.items()
            for part in (str(path), state.contents if state else "unreadable")
        ]

    def changed(self, later: Snapshot) -> list[Path]:
        """Which of the later files have been written since this snapshot. For a file that is not in this one,
        the file system's times decide.
        """

        def same(path: Path, now: _State | None) -> bool:
            if path in self.files:
                return now == self.files[path]
            if now is None:
                return False
            return max(now.modified_ns, now.changed_ns) < self.moment_ns - _CLOCK_STEP_NS

        return [path for path, now in later.files.items() if not same(path, now)]


def _state(path: Path) -> _State | None:
    try:
        about = path.stat()
        return _State(about.st_ino, about.st_mtime_ns, about.st_ctime_ns, cache.digest([path.read_bytes()]))
    except OSError:
        return None
