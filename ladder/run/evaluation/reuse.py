"""Chooses the problems of a check from a rung's own buffers and grid, which runs on small problems show.

A buffer that is given back too early, or filled before it is free, shows only once it is used again; a fault
between blocks, or between the work items of one, only where there are several.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
