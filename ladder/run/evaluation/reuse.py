"""Chooses problems from a rung's own buffers and grid, which runs on small problems show, and its constants.

A buffer that is given back too early, or filled before it is free, shows only once it is used again; a fault
between blocks, or between the work items of one, only where there are several; and an index that wraps around
or is cut off at a constant, only where there are more.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ladder.common.files import SOURCE_SUFFIXES
from ladder.errors import LadderError
from ladder.operations import AnyProblem, get_operation, operation_of
from ladder.run.backends import Runner, Treatment
from ladder.stages import Stage

#: Of the virtual GPU that rungs are checked on: with few, a persistent kernel's blocks have much to do.
MULTIPROCESSORS = 2
#: How often each buffer is used, at least.
_USES = 4
#: A kernel with more blocks than this for each multiprocessor is not persistent.
_MOST_RESIDENT = 4


def reusing_problems(stage: Stage, runner: Runner) -> list[AnyProblem]:
    """For each direction of growth, the smallest problem on which the rung uses each buffer several times or,
    if it starts more blocks instead, has several. None for a rung without asynchronous copies.
    """
    operation, dtype = get_operation(stage.computes), stage.dtypes[0]
    found: list[AnyProblem] = []
    places: dict[int, int] = {}
    # Buffers are smallest at the largest head dim, so each search begins where the one before has ended.
    for head_dim in sorted(stage.head_dims or (0,), reverse=True):
        for direction, problems in enumerate(operation.growing(dtype, head_dim)):
            if stage.suits(problems[0]):
                place = _place(runner, problems, places.get(direction, 0))
                if place >= 0:
                    places[direction] = place
                    found.append(problems[place])
    return found


def _place(runner: Runner, problems: Sequence[AnyProblem], start: int) -> int:
    """The place of the first problem from ``start`` on that suffices, or on which the rung fails; -1 if
    nothing grows.
    """
    first, several_blocks = None, -1
    for place in sorted({0, *range(max(start, 1), len(problems))}):
        try:
            now = _Measured.of(runner, problems[place])
        except LadderError:
            return place
        if first is None:
            first = now
        if not now.copies:
            break
        if uses := [now.copies[key] for key in now.copies if now.copies[key] > first.copies.get(key, 0)]:
            if min(uses) >= _USES:
                return place
        elif now.blocks > first.blocks:
            several_blocks = place if several_blocks < 0 else several_blocks
            if now.blocks > _MOST_RESIDENT * MULTIPROCESSORS:
                break
    return several_blocks


#: A comment or a text, and a whole number in decimal.
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.'])\d+(?![\w.'])")
#: Larger constants do not number what a test's problem has many of; multiples of 1,024 are sizes of memory.
_MOST = 2048


def largest_constant(stage: Stage) -> int:
    """The largest constant in the rung's own sources that an index might be compared with."""
    sources = [path for path in stage.path.rglob("*") if path.suffix in SOURCE_SUFFIXES]
    texts = [_NO_CODE.sub(" ", path.read_text(encoding="utf-8", errors="replace")) for path in sources]
    numbers = [int(number) for text in texts for number in _NUMBER.findall(text)]
    return max((one for one in numbers if one <= _MOST and one % 1024), default=0)


def busy_problem(stage: Stage, runner: Runner) -> tuple[AnyProblem, int] | None:
    """The quickest problem that gives each block of a persistent kernel several work items, on a GPU of
    ``MULTIPROCESSORS``, and the number of its blocks; None for other rungs.
    """
    operation, head_dim = get_operation(stage.computes), min(stage.head_dims or (0,))
    series = operation.growing(stage.dtypes[0], head_dim)
    suiting = [taken for one in series if (taken := [*filter(stage.suits, one)])]
    if not any(_persistent_blocks(runner, one[-1], _USES) for one in suiting):
        return None
    for problem in sorted(itertools.chain(*suiting), key=lambda problem: problem.flops):
        if blocks := _persistent_blocks(runner, problem, _USES):
            return problem, blocks
    return None


def _persistent_blocks(runner: Runner, problem: AnyProblem, items: int) -> int:
    """The blocks of a kernel that has so many work items for each; 0 if there is none, or the rung fails."""
    inputs = operation_of(problem).make_inputs(problem)

    def blocks(multiprocessors: int) -> dict[str, int]:
        treatment = Treatment(skip_kernels=True, multiprocessors=multiprocessors)
        launches = runner.run(problem, inputs, treatment=treatment).launches
        return {launch.mangled: math.prod(launch.grid) for launch in launches}

    try:
        few, many = blocks(MULTIPROCESSORS), blocks(1 << 16)
    except LadderError:
        return 0
    return next((count for kernel, count in few.items() if many.get(kernel, 0) >= items * count), 0)


@dataclass(frozen=True)
class _Measured:
    """The blocks of the kernels that copy asynchronously; and of each instruction that does, how often the
    first block uses each of its places.
    """

    blocks: int
    copies: dict[tuple[str, int], float]

    @classmethod
    def of(cls, runner: Runner, problem: AnyProblem) -> _Measured:
        inputs = operation_of(problem).make_inputs(problem)
        treatment = Treatment(multiprocessors=MULTIPROCESSORS)
        launches = runner.run(problem, inputs, treatment=treatment, details=True).launches
        copying = {launch.mangled: launch for launch in launches if launch.copies()}
        return cls(
            sum(math.prod(launch.grid) for launch in copying.values()),
            {
                (name, instruction): copies.count / copies.places
                for name, launch in copying.items()
                for instruction, copies in launch.copies().items()
            },
        )
