"""Estimates beforehand how much memory running and checking a problem takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ladder.errors import InvalidProblem
from ladder.operations.base import AnyProblem
from ladder.operations.registry import operation_of

_CGROUP = Path("/sys/fs/cgroup")


def needed(problem: AnyProblem) -> int:
    """The peak number of bytes while drawing a problem's inputs, running a stage on them and checking it."""
    return operation_of(problem).needed_bytes(problem)


def available() -> int | None:
    """Bytes available in this container without swapping; None if unknown."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    if match is None:
        return None
    limit = _container_limit()
    return int(match[1]) * 1024 if limit is None else min(int(match[1]) * 1024, limit)


def _container_limit() -> int | None:
    """Bytes left of the container's limit. The limit counts cached files, but they can be evicted."""
    try:
        most = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        match = re.search(r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # no limit, or cgroups v1
        return None
    return most - used + (int(match[1]) if match else 0)


def require(problem: AnyProblem) -> None:
    """Raises :class:`InvalidProblem` if running and checking the problem takes more memory than available."""
    there, takes = available(), needed(problem)
    if there is None or takes <= there:
        return
    raise InvalidProblem(
        f"{problem} takes {_gigabytes(takes)} of memory to run and check; {_gigabytes(there)} are available",
        f"Choose smaller sizes: --problem {operation_of(problem).size_text[0]}",
    )


@contextmanager
def guarded(problem: AnyProblem) -> Iterator[None]:
    """Turns running out of memory nevertheless, or on a GPU, into an :class:`InvalidProblem`."""
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        is_full = isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(
            error
        )
        if not is_full:
            raise
        raise InvalidProblem(
            f"{problem} does not fit into memory: {str(error).partition('. ')[0]}",
            f"Choose smaller sizes: --problem {operation_of(problem).size_text[0]}",
        ) from error


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
