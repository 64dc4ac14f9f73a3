"""Advice on a race that depends on the source at its two lines, and between them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

#: A barrier stands between the lines, so the accesses belong to different rounds of a loop.
BACK_EDGE = (
    "A barrier stands between the two lines. The barrier on the way back is missing: put {barrier} behind "
    "line {last}, before the loop comes to line {first} again."
)
#: The line writes one element of an array and reads another one.
NEIGHBOUR = (
    "At this line a thread reads an element that another thread writes. Read it into a register, put "
    "{barrier} between the read and the write, and another one before the next round."
)
#: The barrier that would order the lines stands behind an if.
CONDITIONAL = (
    "The barrier at line {line} stands behind an if. It orders the two lines only if all threads reach it, "
    "each time: take it out of the branch."
)
#: An arrival at an mbarrier after the write hands the data over, for all lanes of its warp.
ARRIVAL = (
    "The arrival at line {line} hands over what all lanes have written: put __syncwarp() between the write "
    "and the arrival, and wait for the arrival before the read."
)
#: A line in a loop uses another thread's element, and the other line comes after the loop.
IN_THE_LOOP = (
    "Put {barrier} behind line {line}, inside the loop: the next round needs it, and so does what comes "
    "after the loop."
)
#: The index is loaded, and may be the same for several threads, which read, change and write one element.
SAME_INDEX = (
    "Threads may have the same index here. Reading, changing and writing the element must be one step: use "
    "atomicAdd. A barrier does not help."
)
_BARRIERS = {
    "__syncthreads()": re.compile(r"\b(?:__syncthreads\w*|block::sync|block::async_wait)\s*\("),
    "__syncwarp()": re.compile(r"\b(?:__syncwarp|__syncthreads\w*|\w+::sync|block::async_wait)\s*\("),
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_IF = re.compile(r"\s*(?:\} *)?(?:else\b|if *\()")
_ARRIVAL = re.compile(r"\barrive\w*\s*\(")
_LOOP = re.compile(r"\s*(?:for|while) *\(")
_NESTED = re.compile(r"\b\w+\[\w+\[[^\[\]]*\]\]")
#: How far after two lines their loop may end.
_BEYOND = 60
#: How far after a write the arrival that hands it over stands.
_SOON = 12
_ELEMENT = re.compile(r"\b(\w+)\s*\[([^\[\]]*)\]")


def has_barrier_between(file: str, first: int, last: int, barrier: str) -> bool:
    """Whether a barrier at least as strong as ``barrier`` stands between two lines of a file. False if the
    file cannot be read.
    """
    lines = _lines(file)[first : last - 1]
    return bool(_BARRIERS[barrier].search(_COMMENT.sub("", "\n".join(lines))))


def conditional_barrier(file: str, first: int, last: int, barrier: str) -> int | None:
    """The line of a barrier that stands behind an if, between two lines or as the next one after both."""
    for number, line in enumerate(_lines(file)[first : last + _BEYOND], start=first + 1):
        if not _BARRIERS[barrier].search(_COMMENT.sub("", line)):
            continue
        above = [_IF.match(line), *(_IF.match(_lines(file)[one - 1]) for one in _around(file, number, first))]
        if any(above):
            return number
        if number > last:
            return None
    return None


def arrival_after(file: str, line: int) -> int | None:
    """The line of an arrival at an mbarrier soon after a line."""
    after = enumerate(_lines(file)[line : line + _SOON], start=line + 1)
    return next((number for number, text in after if _ARRIVAL.search(_COMMENT.sub("", text))), None)


def is_in_a_loop_before(file: str, line: int, other: int) -> bool:
    """Whether ``line`` is in a loop that ends before ``other``, and no barrier stands behind it there."""
    lines = _lines(file)
    loop = next((one for one in _around(file, line, 0) if _LOOP.match(lines[one - 1])), None)
    if loop is None or other < line:
        return False
    ends = next((one for one in range(line, other) if _indent(lines[one]) <= _indent(lines[loop - 1])), None)
    return ends is not None and not _BARRIERS["__syncthreads()"].search("\n".join(lines[line:ends]))


def has_a_loaded_index(file: str, line: int, other: int) -> bool:
    """Whether both lines use the same element of an array, and its index is an element of another one."""
    found = [
        set(_NESTED.findall(_COMMENT.sub("", "".join(_lines(file)[one - 1 : one])))) for one in (line, other)
    ]
    return bool(found[0] & found[1])


def _around(file: str, number: int, first: int) -> Iterator[int]:
    """The numbers of the lines below ``first`` whose blocks a line is in, innermost first, by indentation."""
    lines = _lines(file)
    width = _indent(lines[number - 1])
    for one in range(number - 1, first, -1):
        if lines[one - 1].strip() and _indent(lines[one - 1]) < width:
            width = _indent(lines[one - 1])
            yield one


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 10**6


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
