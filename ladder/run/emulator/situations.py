"""Advice on a race that depends on the source at its two lines, and between them."""

from __future__ import annotations

import functools
import re
from pathlib import Path

#: A barrier stands between the lines, so the accesses belong to different rounds of a loop.
BACK_EDGE = (
    "A barrier stands between the two lines. The one on the way back is missing: put {barrier} behind line "
    "{last}, before the loop comes to line {first} again."
)
#: The line writes one element of an array and reads another one.
NEIGHBOUR = (
    "At this line a thread reads an element that another thread writes. Read it into a register, put "
    "{barrier} between the read and the write, and another one before the next round."
)
_BARRIERS = {
    "__syncthreads()": re.compile(r"\b(?:__syncthreads\w*|block::sync|block::async_wait)\s*\("),
    "__syncwarp()": re.compile(r"\b(?:__syncwarp|__syncthreads\w*|\w+::sync|block::async_wait)\s*\("),
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ELEMENT = re.compile(r"\b(\w+)\s*\[([^\[\]]*)\]")


def has_barrier_between(file: str, first: int, last: int, barrier: str) -> bool:
    """Whether a barrier at least as strong as ``barrier`` stands between two lines of a file. False if the
    file cannot be read.
    """
    lines = _lines(file)[first : last - 1]
    return bool(_BARRIERS[barrier].search(_COMMENT.sub("", "\n".join(lines))))


def uses_a_neighbour(file: str, line: int) -> bool:
    """Whether the line has two different elements of one array."""
    text = "".join(_lines(file)[line - 1 : line])
    found: dict[str, set[str]] = {}
    for name, index in _ELEMENT.findall(_COMMENT.sub("", text)):
        found.setdefault(name, set()).add("".join(index.split()))
    return any(len(indices) > 1 for indices in found.values())


@functools.lru_cache(maxsize=64)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()
