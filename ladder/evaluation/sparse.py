"""Runs a few blocks alone on tensors of more elements than 32 bits can count.

Their memory is reserved and not touched, but for the last part of each tensor, which is a problem of its
own: an index that overflows misses it. Mostly the last blocks compute it, or else the first ones: a rehearsal
on small tensors tells.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.backends import EmulatorBackend, Treatment
from ladder.build import Target, build
from ladder.emulator import instruction_limit
from ladder.errors import ExecutionError
from ladder.evaluation.isolation import call
from ladder.operations import AnyProblem, Huge, operation_of, torch_dtypes
from ladder.stages import Stage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Absent from Python's mmap before 3.13: the system need not be able to back all of the memory.
_MAP_NORESERVE = 0x4000
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
    return call(_faults, extension, target, problem, rehearsal, last, huge.blocks)


def _faults(
    extension: Path,
    target: Target,
    problem: AnyProblem,
    rehearsal: AnyProblem,
    last: AnyProblem,
    blocks: int,
) -> str | None:
    for treatment in (Treatment(last_blocks=blocks), Treatment(first_blocks=blocks)):
        try:
            suits = not _faults_of_part(extension, target, rehearsal, last, treatment)
        except ExecutionError:  # they wait for the others, for instance
            suits = False
        if suits:
            return _faults_of_part(extension, target, problem, last, treatment)
    return None


def _faults_of_part(
    extension: Path, target: Target, problem: AnyProblem, last: AnyProblem, treatment: Treatment
) -> str:
    backend, operation = EmulatorBackend(), operation_of(problem)
    dtypes = torch_dtypes()
    small = operation.make_inputs(last)
    shapes = operation.input_shapes(problem)
    inputs: dict[str, Tensor | None] = {
        name: None if x is None else _ending(shapes[name], x) for name, x in small.items() if name in shapes
    }
    indices = operation.indices(problem, small)
    inputs |= {name: indices.get(name) for name in small if name not in shapes}
    ends, outputs = {}, {}
    for whole, part in zip(operation.outputs(problem), operation.outputs(last), strict=True):
        outputs[whole.name] = _reserved(whole.shape, dtypes[whole.dtype])
        ends[whole.name] = _end(outputs[whole.name], part.shape)
        ends[whole.name].fill_(math.nan)
    with instruction_limit(_MOST_INSTRUCTIONS):
        backend.execute_into(outputs, extension, target, problem, inputs, treatment)
    expected = operation.reference(last, small)
    return "; ".join(
        f"|{name} - ref| = {found.error:.3g}, bound {found.bound:.3g}"
        for name, found in expected.errors(ends).items()
        if not found.is_allowed
    )


def _ending(shape: Sequence[int], last: Tensor) -> Tensor:
    whole = _reserved(shape, last.dtype)
    _end(whole, last.shape).copy_(last)
    return whole


def _end(whole: Tensor, shape: Sequence[int]) -> Tensor:
    """The last elements of a tensor in each dimension."""
    return whole[tuple(slice(size - part, size) for size, part in zip(whole.shape, shape, strict=True))]


def _reserved(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros that take no memory until they are touched."""
    import torch

    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype).view(*shape)
