"""ptxas's remarks on wgmma and setmaxnreg: where it inserts a wait or a fence, or serialises products.

ptxas names lines of the PTX; :func:`parse` finds the lines of the source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: What remarks say of programs whose results PTX leaves undefined: they touch registers of a product in
#: flight, or lack a wait or wgmma.fence. ptxas waits there, which no program may rely on.
_UNDEFINED = re.compile(
    r"warpgroup\.(wait|arrive) is injected|non wgmma instructions (defining|reading)|compiler-inserted WG\."
)
#: What a remark means, and what to do, by its number.
ADVICE = {
    "C7508": "setmaxnreg does nothing: give the kernel __launch_bounds__, so that its registers are known.",
    "C7517": "A register of a product in flight is used before wgmma.wait_group. PTX leaves the result "
    "undefined; ptxas waits here, so the result is right and the time is lost.",
    "C7519": "wgmma.fence is missing before the product. PTX leaves the result undefined; ptxas inserts it.",
}
_SERIALIZED = (
    "The products run one after another. Keep them and their registers in one function, without branches."
)
_FILE = "remarks.json"
_REMARK = re.compile(r"^ptxas info\s*: \((C75\d\d)\) (.*)$", re.MULTILINE)

#: What tells a template's instances apart.
_INSTANCE = re.compile(r" in around line \d+| in (?:the )?function '[^']*'")


@dataclass(frozen=True)
class Remark:
    """A remark with its place: the instruction's line, and the kernel's line that it was inlined into.

    Lines are 0 and files empty if the source is not known.
    """

    number: str
    message: str
    file: str
    line: int
    kernel_file: str
    kernel_line: int

    @property
    def is_undefined(self) -> bool:
        """Whether PTX leaves the program's result undefined."""
        return bool(_UNDEFINED.search(self.message))

    @property
    def advice(self) -> str:
        return ADVICE.get(self.number, _SERIALIZED)


def parse(messages: str, ptx: str) -> tuple[Remark, ...]:
    """The remarks in ptxas's ``messages`` on a PTX text; one for all instances of a template."""
    lines = ptx.splitlines()
    places = _Places(lines)
    found = dict.fromkeys(
        Remark(number, _INSTANCE.sub("", message), *places.of(at))
        for number, message in _REMARK.findall(messages)
        for at in _ptx_lines(message, lines)
    )
    return tuple(found)


def _ptx_lines(message: str, lines: Sequence[str]) -> Iterator[int]:
    """The PTX lines (1-based) that a remark is about."""
    if named := re.search(r"around line (\d+)", message):
        yield int(named[1])
        return
    if "'setmaxnreg'" in message:
        yield from (at for at, line in enumerate(lines, 1) if "setmaxnreg." in line)
        return
    function = re.search(r"function '([^']+)'", message)
    inside = function is None
    for at, line in enumerate(lines, 1):
        if function and re.search(rf"\.(entry|func)\b.*\b{re.escape(function[1])}\b", line):
            inside = True
        elif inside and "wgmma.mma_async" in line:
            yield at
            return


class _Places:
    """Source lines of PTX lines, by ``.loc`` and ``.file``."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._files = {
            found[1]: found[2]
            for line in lines
            if (found := re.match(r'\s*\.file\s+(\d+) "([^"]*)"', line)) is not None
        }

    def of(self, at: int) -> tuple[str, int, str, int]:
        """File and line of the instruction at PTX line ``at``, and of the kernel's line that called it."""
        callers: dict[str, str] = {}
        last = ""
        for line in self._lines[:at]:
            if found := re.match(r"\s*\.loc\s+(\d+ \d+ \d+)(?:.*inlined_at (\d+ \d+ \d+))?", line):
                last = found[1]
                callers[last] = found[2] or ""
        outermost = last
        while callers.get(outermost):
            outermost = callers.pop(outermost)
        return (*self._place(last), *self._place(outermost))

    def _place(self, place: str) -> tuple[str, int]:
        if not place:
            return "", 0
        file, line, _ = place.split()
        return self._files.get(file, ""), int(line)


def write(remarks: Sequence[Remark], directory: Path) -> None:
    """Keeps a build's remarks beside it."""
    (directory / _FILE).write_text(json.dumps([asdict(remark) for remark in remarks]))


def read(directory: Path) -> tuple[Remark, ...]:
    """The remarks of the build in this directory; none if ptxas was not needed."""
    path = directory / _FILE
    return tuple(Remark(**row) for row in json.loads(path.read_text())) if path.is_file() else ()
