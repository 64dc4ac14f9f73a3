"""What a verdict requires besides accurate outputs: that kernels computed them, and not by luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.backends import EmulatorBackend, Execution, Treatment, framed, is_unwritten
from ladder.build import Target
from ladder.errors import ExecutionError, UnspecifiedOutput
from ladder.operations import AnyProblem, Tensors

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.operations import Deviation

#: Reverse order with blocks interleaved, another value in unwritten memory, and addresses aligned to no more
#: than 16 bytes.
_OTHERWISE = Treatment(backwards=True, unwritten=0x7B, offset_bytes=16)


def copies(tensors: Tensors) -> Tensors:
    """Copies the tensors to other memory."""
    return {name: None if tensor is None else tensor.clone() for name, tensor in tensors.items()}


def moved(tensor: Tensor, offset_bytes: int) -> Tensor:
    """Copies the tensor to other memory, ``offset_bytes`` past a 64-byte boundary."""
    return framed(tensor.shape, tensor.dtype, tensor.device, offset_bytes=offset_bytes).copy_(tensor)


def require_untouched(inputs: Tensors, before: Tensors) -> None:
    """Raises :class:`ExecutionError` if a stage has changed its inputs, which the reference depends on."""
    written = _differing(inputs, before)
    if written:
        raise ExecutionError(f"it writes to {_and(written)}, which it is only given to read")


def require_kernels(
    backend: EmulatorBackend,
    extension: Path,
    target: Target,
    problem: AnyProblem,
    inputs: Tensors,
    execution: Execution,
) -> None:
    """Raises :class:`ExecutionError` if no kernel was launched or the host writes an output, which a run that
    skips the kernels reveals.
    """
    if not execution.launches:
        raise ExecutionError("it launches no kernel")
    without = Treatment(skip_kernels=True)
    try:
        idle = backend.execute(extension, target, problem, inputs, treatment=without)
    except ExecutionError:
        return  # the host code refuses to go on without its kernels' results
    written = [name for name, tensor in idle.outputs.items() if not is_unwritten(tensor)]
    if written:
        raise ExecutionError(f"{_and(written)}: written without a kernel, by cudaMemcpy or by host code")


def run_otherwise(
    backend: EmulatorBackend, extension: Path, target: Target, problem: AnyProblem, inputs: Tensors
) -> Execution:
    """Runs again, with other choices wherever CUDA leaves behaviour unspecified."""
    offset = _OTHERWISE.offset_bytes
    elsewhere = {name: None if tensor is None else moved(tensor, offset) for name, tensor in inputs.items()}
    return backend.execute(extension, target, problem, elsewhere, treatment=_OTHERWISE)


def require_same_outputs(first: Execution, again: Execution) -> None:
    """Raises :class:`UnspecifiedOutput` unless both runs gave bit-identical outputs."""
    differing = _differing(first.outputs, again.outputs)
    if differing:
        raise UnspecifiedOutput(
            f"{_and(differing)}: other values in another order of blocks and warps, or with other values in "
            "memory that nobody wrote",
            "Look for a race or a missing initialisation: ladder check. If the order may matter, as with "
            "atomicAdd of floats, say deterministic = false in stage.toml.",
        )


def larger_errors(first: Mapping[str, Deviation], again: Mapping[str, Deviation]) -> dict[str, Deviation]:
    """For each output the larger error of two runs, the first of which is allowed."""
    return {
        name: found if again[name].is_allowed and again[name].largest <= found.largest else again[name]
        for name, found in first.items()
    }


def _differing(some: Tensors, others: Tensors) -> list[str]:
    """The names of tensors that are not bit-identical."""
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

    def same(a: Tensor | None, b: Tensor | None) -> bool:
        if a is None or b is None:
            return a is b
        kind = integers[a.element_size()]
        return torch.equal(a.view(kind), b.view(kind))

    return [name for name, tensor in some.items() if not same(tensor, others[name])]


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
