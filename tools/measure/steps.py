#!/usr/bin/env python3
"""Prints how many lines of code each rung adds to the rung before it, and removes.

    python -m tools.measure.steps [RUNG ...]

Comments, blank lines, white space and the rung's own name do not count. The column ``library`` has the lines
of ``stages/include/`` that generate code in this rung and in no rung before it, in the order of ``ladder
stages``, from the line tables of the compiled PTX: what a reader sees for the first time. Needs the emulator
and its compiler, and no GPU.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ladder.compile import build
from ladder.errors import LadderError
from ladder.run.backends import get_backend
from ladder.run.evaluation import default_problem
from ladder.stages import Stage, discover, include_directory

_CODE = (".cu", ".h")
_COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.DOTALL)
_FILE = re.compile(rb'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)
_LOCATION = re.compile(rb"(?:^\s*\.loc|inlined_at)\s+(\d+)\s+(\d+)", re.MULTILINE)
_BRACES_OF_A_VALUE = re.compile(r"(?<=[\w>])\{([^{}]*)\}")
_CONTAINER = re.compile(r"\b(?:namespace|struct|class|union|enum|extern)\b[^()]*$")


@dataclass(frozen=True)
class Step:
    """From the rung ``before`` to ``stage``: lines of code added and removed in the rung's folder, and the
    lines of the shared headers that generate code here and in no rung listed before it.
    """

    stage: Stage
    before: str
    added: int
    removed: int
    library: int


@dataclass(frozen=True)
class Function:
    """A function's first line, and how many lines of code it has from there to its closing brace."""

    line: int
    lines: int


def without_comments(text: str) -> str:
    """The text with comments and the contents of strings blanked out; line breaks stay."""

    def blank(match: re.Match[str]) -> str:
        breaks = "\n" * match[0].count("\n")
        return breaks if match[0].startswith("/") else match[0][0] * 2 + breaks

    return _COMMENT_OR_STRING.sub(blank, text)


def code_lines(text: str) -> list[str]:
    """The lines of code, without white space and comments; strings stay."""
    kept = _COMMENT_OR_STRING.sub(lambda m: "\n" * m[0].count("\n") if m[0].startswith("/") else m[0], text)
    lines = ("".join(line.split()) for line in kept.splitlines())
    return [line for line in lines if line]


def common_lines(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence: the lines that a minimal diff leaves."""
    row = [0] * (len(second) + 1)
    for line in first:
        diagonal = 0
        for i, other in enumerate(second, start=1):
            diagonal, row[i] = row[i], diagonal + 1 if line == other else max(row[i], row[i - 1])
    return row[-1]


def functions(text: str) -> Iterator[Function]:
    """The functions that a formatted source file defines; those of a class, no lambdas within one."""
    code = _BRACES_OF_A_VALUE.sub(r"(\1)", without_comments(text))
    head, depth, start = 0, 0, None
    for match in re.finditer(r"[{};]", code):
        place, mark = match.start(), match[0]
        if start is None:
            declared = code[head:place]
            if (
                mark == "{"
                and "(" in declared
                and not _CONTAINER.search(declared)
                and "=" not in declared[-3:]
            ):
                start = place - len(declared.lstrip())
                depth = 1
            head = place + 1
        elif mark != ";":
            depth += 1 if mark == "{" else -1
            if depth == 0:
                body = code[start : place + 1]
                count = sum(bool(line.strip()) for line in body.splitlines())
                yield Function(code.count("\n", 0, start) + 1, count)
                start, head = None, place + 1


def sources(stage: Stage) -> dict[str, list[str]]:
    """The lines of code of each file of a rung, in which the rung's name is replaced."""
    found = {}
    for path in sorted(stage.path.iterdir()):
        if path.suffix in _CODE:
            found[path.name] = code_lines(re.sub(rf"\b{re.escape(stage.name)}\b", "RUNG", path.read_text()))
    return found


def changed_lines(before: Stage, stage: Stage) -> tuple[int, int]:
    """The lines of code that are added and removed between the folders of two rungs."""
    old, new = sources(before), sources(stage)
    same = sum(common_lines(old[name], new[name]) for name in old.keys() & new.keys())
    return sum(map(len, new.values())) - same, sum(map(len, old.values())) - same


@cache
def library_lines(name: str) -> frozenset[tuple[str, int]]:
    """The lines of ``stages/include/`` that generate code in a rung, for the problem of its comparison.
    Raises :class:`LadderError`.
    """
    stage = discover()[name]
    target = get_backend("emulator").target(stage, None)
    # Not `only=`: that takes a build of all kernels if there is one, and the count would depend on the cache.
    needed = {**stage.chosen_options({}), **stage.needed_options([default_problem(name)])}
    binary = build(stage, target, needed).read_bytes()
    include = include_directory().resolve()
    files = {number: Path(path.decode()).resolve() for number, path in _FILE.findall(binary)}
    return frozenset(
        (str(files[number].relative_to(include)), int(line))
        for number, line in set(_LOCATION.findall(binary))
        if int(line) and number in files and include in files[number].parents
    )


def step_of(stage: Stage) -> Step | None:
    """The step from the rung before; None for a ladder's first rung. Raises :class:`LadderError`."""
    if stage.before is None:
        return None
    before = discover()[stage.before]
    own = [rung.name for rung in discover() if rung.is_own]
    seen = frozenset().union(*map(library_lines, own[: own.index(stage.name)]))
    added, removed = changed_lines(before, stage)
    return Step(stage, before.name, added, removed, len(library_lines(stage.name) - seen))


def steps() -> list[Step]:
    """Every step of the project's own ladders."""
    found = (step_of(stage) for stage in discover() if stage.is_own)
    return [step for step in found if step is not None]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="default: all")
    options = parser.parse_args()
    table = Table("rung", "before", "added", "removed", "library", "idea", box=None)
    try:
        chosen = [discover()[name] for name in options.rungs]
        for step in [s for s in map(step_of, chosen) if s] if chosen else steps():
            counts = map(str, (step.added, step.removed, step.library))
            table.add_row(step.stage.name, step.before, *counts, step.stage.idea)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
