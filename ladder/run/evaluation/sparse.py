"""Runs a few blocks alone on tensors of more elements than 32 bits can count.

Their memory is reserved and not touched, but for the last part of each tensor, which is a problem of its
own: an index that overflows misses it. Mostly the last blocks compute it, or else the first ones: a rehearsal
on small tensors tells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ladder.compile import build
from ladder.errors import ExecutionError
from ladder.operations import AnyProblem, Huge, operation_of, torch_dtypes
from ladder.run.backends import Arena, EmulatorBackend, EmulatorRunner, Treatment
from ladder.run.emulator import instruction_limit
from ladder.stages import Stage

if TYPE_CHECKING:
    from torch import Tensor

#: Of one warp; a block that walks over all rows exceeds it.
_MOST_INSTRUCTIONS = 1 << 20


def faults_beyond_32_bits(stage: Stage, huge: Huge) -> str | None:
    """Says what is wrong with the last part of the outputs; "" if nothing is, None if neither the last blocks
    nor the first ones compute it alone.

    Raises :class:`UnsupportedProblem`, :class:`BuildError`, :class:`ExecutionError` if the kernels fail, and
    OSError if the memory cannot be reserved.
    """
    backend = EmulatorBackend()
    target = backend.target(stage, None)
    extension = build(stage, target, stage.chosen_options({}))
    problem, rehearsal, last = map(stage.accept, (huge.problem, huge.rehearsal, huge.last))
    with backend.runner(extension, target) as runner:
        for treatment in (Treatment(last_blocks=huge.blocks), Treatment(first_blocks=huge.blocks)):
            try:
                suits = not _faults_of_part(runner, rehearsal, last, treatment)
            except ExecutionError:  # they wait for the others, for instance
                suits = False
            if suits:
                return _faults_of_part(runner, problem, last, treatment)
    return None


def _faults_of_part(
    runner: EmulatorRunner, problem: AnyProblem, last: AnyProblem, treatment: Treatment
) -> str:
    operation, dtypes = operation_of(problem), torch_dtypes()
    small = operation.make_inputs(last)
    shapes = operation.input_shapes(problem)
    parts = {name: x for name, x in small.items() if x is not None and name in shapes}
    indices = operation.indices(problem, small)
    wholes = {name: x for name, x in indices.items() if name in small and name not in shapes}
    outputs = {one.name: (one.shape, dtypes[one.dtype]) for one in operation.outputs(problem)}
    reserved = {name: (shapes[name], x.dtype) for name, x in parts.items()}
    given = {name: (x.shape, x.dtype) for name, x in wholes.items()}
    with Arena.reserved({**reserved, **given, **outputs}) as arena:
        for name, x in {**parts, **wholes}.items():
            _end(arena[name], x.shape).copy_(x)
        ends = {one.name: _end(arena[one.name], one.shape) for one in operation.outputs(last)}
        for end in ends.values():
            end.fill_(math.nan)
        tensors = {name: arena.get(name) for name in (*small, *outputs)}
        with instruction_limit(_MOST_INSTRUCTIONS):
            failure = runner.run_in(arena, problem, tensors, outputs, treatment).failure
        if failure:
            raise failure
        return "; ".join(
            f"|{name} - ref| = {found.error:.3g}, bound {found.bound:.3g}"
            for name, found in operation.reference(last, small).errors(ends).items()
            if not found.is_allowed
        )


def _end(whole: Tensor, shape: Sequence[int]) -> Tensor:
    """The last elements of a tensor in each dimension."""
    return whole[tuple(slice(size - part, size) for size, part in zip(whole.shape, shape, strict=True))]
