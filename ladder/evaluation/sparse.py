"""Runs the last blocks alone on tensors of more elements than 32 bits can count.

Their memory is reserved and not touched, but for the last part of each tensor, which is a problem of its
own: an index that overflows misses it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ladder.backends import Arena, EmulatorBackend, EmulatorRunner, Treatment
from ladder.build import build
from ladder.emulator import instruction_limit
from ladder.operations import Huge, operation_of, torch_dtypes
from ladder.stages import Stage

if TYPE_CHECKING:
    from torch import Tensor

#: Of one warp; a block that walks over all rows exceeds it.
_MOST_INSTRUCTIONS = 1 << 20


def faults_of_last_blocks(stage: Stage, huge: Huge) -> str:
    """Says what is wrong with the outputs of the last blocks; "" if nothing is.

    Raises :class:`UnsupportedProblem`, :class:`BuildError`, :class:`ExecutionError` if the kernels fail, and
    OSError if the memory cannot be reserved.
    """
    backend = EmulatorBackend()
    target = backend.target(stage, None)
    extension = build(stage, target, stage.chosen_options({}))
    accepted = replace(huge, problem=stage.accept(huge.problem), last=stage.accept(huge.last))
    with backend.runner(extension, target) as runner:
        return _faults(runner, accepted)


def _faults(runner: EmulatorRunner, huge: Huge) -> str:
    problem, last = huge.problem, huge.last
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
            treatment = Treatment(last_blocks=huge.blocks)
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
