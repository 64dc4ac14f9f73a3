"""The lock under which ``torch.utils.cpp_extension`` builds an extension."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Any


class BuildLock:
    """In place of torch's: a file that a killed process leaves behind, so that all later builds wait forever.
    A lock on the file ends with its process.
    """

    def __init__(self, path: str, *_: Any, **named: Any) -> None:
        self._path = path
        self._held: int | None = None

    def try_acquire(self) -> bool:
        """Waits for the build of another process. What that has built is not built again."""
        self._held = os.open(self._path, os.O_CREAT | os.O_RDWR)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._held, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None
