"""What running and checking a problem takes of the machine's memory, found out before it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ladder.errors import InvalidProblem
from ladder.problem import Problem

_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
_FLOAT64 = 8
#: In float64, bytes for each logit of the one head that the reference works on: the logits, two copies of
#: them on the way to exp, and with a mask what indexing by it takes.
_LOGITS, _MASKED_LOGITS = 24, 26
_CGROUP = Path("/sys/fs/cgroup")


def needed(problem: Problem, *, logits: bool = True) -> int:
    """Bytes at the peak of drawing the inputs of a problem, running a stage on them and checking it.

    Without ``logits`` the reference is computed elsewhere, on a GPU.
    """
    size = _BYTES[problem.dtype or "f32"]
    q = problem.batch * problem.heads * problem.q_len * problem.head_dim
    kv = 2 * problem.batch * problem.num_kv_heads * problem.kv_len * problem.head_dim
    rows = problem.batch * problem.heads * problem.q_len
    drawing = _BYTES["f32"] * (q + kv) + (size * (q + kv) if size != _BYTES["f32"] else 0)
    held = size * (2 * q + kv) + _BYTES["f32"] * rows + _FLOAT64 * (q + rows)
    head = (_MASKED_LOGITS if problem.is_causal else _LOGITS) * problem.q_len * problem.kv_len
    # torch's attention on the CPU: k and v for each query head, its output, and that less the reference.
    copies = kv * (problem.heads // problem.num_kv_heads) if problem.num_kv_heads != problem.heads else 0
    torch = size * (copies + q) + 2 * _FLOAT64 * q
    return max(drawing, held + max(head if logits else 0, torch))


def available() -> int | None:
    """Bytes that can be had without swapping, in this container; None where the system does not say."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    if match is None:
        return None
    limit = _container_limit()
    return int(match[1]) * 1024 if limit is None else min(int(match[1]) * 1024, limit)


def _container_limit() -> int | None:
    """What a container's limit leaves. Cached files, which it counts as used, can be had."""
    try:
        most = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        match = re.search(r"^inactive_file (\d+)", (_CGROUP / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # none, or an older kind
        return None
    return most - used + (int(match[1]) if match else 0)


def require(problem: Problem, *, logits: bool = True) -> None:
    """Raises :class:`InvalidProblem` where running and checking the problem takes more than there is."""
    there, takes = available(), needed(problem, logits=logits)
    if there is None or takes <= there:
        return
    logits_bytes = _FLOAT64 * problem.q_len * problem.kv_len
    largest = "N * M logits of a head" if logits and 6 * logits_bytes > takes else "q, k, v and o"
    raise InvalidProblem(
        f"{problem} takes {_gigabytes(takes)} of memory to run and check, most of it for {largest}; "
        f"{_gigabytes(there)} are available",
        "Choose smaller sizes: --problem B,H,N,M,d",
    )


@contextmanager
def guarded(problem: Problem) -> Iterator[None]:
    """Turns memory that runs out all the same, or on a GPU, into an :class:`InvalidProblem`."""
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
            "Choose smaller sizes: --problem B,H,N,M,d",
        ) from error


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
