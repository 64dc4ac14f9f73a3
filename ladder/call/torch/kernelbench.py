"""KernelBench's layout: which candidate of a folder belongs to which problem."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ladder.errors import InvalidProblem

#: A candidate's path: ``level_1_problem_23_sample_0_kernel.py``, or ``level1/23_Softmax.py``.
_NAME = re.compile(r"level_?(\d+)[_/](?:problem_)?(\d+)\D[^/]*\.py$")


def pairs(problems: Path, candidates: Path) -> list[tuple[Path, Path]]:
    """The candidates below a folder with the problem of each, in the order of the problems.

    ``problems`` holds ``level1/23_Softmax.py`` and so on, each with ``Model`` and ``get_inputs``. A candidate
    has its level and number in its path, as KernelBench's runs write it or as the problem itself is named.

    Raises :class:`InvalidProblem` if no file is such a candidate, or one belongs to no problem.
    """
    numbered = {_number(path, problems): path for path in problems.glob("level*/*.py")}
    found = sorted(
        (number, path) for path in candidates.rglob("*.py") if (number := _number(path, candidates))
    )
    if not found:
        raise InvalidProblem(
            f"no file in {candidates} is named as a candidate",
            "For example: level_1_problem_23_sample_0_kernel.py, or level1/23_Softmax.py",
        )
    return [*_paired(found, numbered, problems)]


def _paired(
    found: list[tuple[tuple[int, int], Path]], numbered: dict[tuple[int, int] | None, Path], problems: Path
) -> Iterator[tuple[Path, Path]]:
    for number, path in found:
        if number not in numbered:
            wanted = f"level{number[0]}/{number[1]}_*.py"
            raise InvalidProblem(f"{problems} has no {wanted}, the problem of {path}")
        yield path, numbered[number]


def _number(path: Path, root: Path) -> tuple[int, int] | None:
    """The level and the number of the problem."""
    match = _NAME.search(path.relative_to(root.parent).as_posix())
    return (int(match[1]), int(match[2])) if match else None
