"""Runs the last blocks alone on tensors of more elements than 32 bits can count.

Their memory is reserved and not touched, but for the last part of each tensor, which is a problem of its
own: an index that overflows misses it.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.backends import EmulatorBackend, Treatment
from ladder.build import Target, build
from ladder.emulator import instruction_limit
from ladder.evaluation.isolation import call
from ladder.operations import Huge, operation_of, torch_dtypes
from ladder.stages import Stage

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: Absent from Python's mmap before 3.13: the system need not be able to back all of the memory.
_MAP_NORESERVE = 0x4000
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
    return call(_faults, extension, target, accepted)


def _faults(extension: Path, target: Target, huge: Huge) -> str:
    problem, last = huge.problem, huge.last
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
        treatment = Treatment(last_blocks=huge.blocks)
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
