"""The lock under which ``torch.utils.cpp_extension`` builds an extension."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Any


class BuildLock:
    """Replaces torch's lock, which is a file: a killed process leaves it behind, and all later builds wait
    forever. A lock on the file ends with its process.
    """

    def __init__(self, path: str, *_: Any, **named: Any) -> None:
        self._path = path
        self._held: int | None = None

    def try_acquire(self) -> bool:
        """Waits for the build of another process. What that has built is not built again."""
        while True:
            held = os.open(self._path, os.O_CREAT | os.O_RDWR)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(held, fcntl.LOCK_EX)
            if _is_at(self._path, held):
                self._held = held
                return True
            os.close(held)  # the other process has removed the file

    def release(self) -> None:
        """Removes the file, because torch's own lock in the same folder would wait for that."""
        if self._held is not None:
            with suppress(FileNotFoundError):
                os.remove(self._path)
            os.close(self._held)
            self._held = None


def _is_at(path: str, descriptor: int) -> bool:
    """Whether the open file is the one at this path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
