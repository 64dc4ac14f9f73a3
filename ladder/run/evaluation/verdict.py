"""What a verdict requires besides accurate outputs: that kernels computed them, and not by luck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ladder.common.words import listed
from ladder.errors import ExecutionError, UnspecifiedOutput
from ladder.operations import AnyProblem, Tensors
from ladder.run.backends import Execution, Runner, Treatment, differing, framed, is_unwritten

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.operations import Deviation

#: Reverse order with blocks interleaved, another value in unwritten memory, and addresses aligned to no more
#: than 16 bytes.
_OTHERWISE = Treatment(backwards=True, unwritten=0x7B, offset_bytes=16)


def moved(tensor: Tensor, offset_bytes: int) -> Tensor:
    """Copies the tensor to other memory, ``offset_bytes`` past a 64-byte boundary."""
    return framed(tensor.shape, tensor.dtype, tensor.device, offset_bytes=offset_bytes).copy_(tensor)


def require_kernels(runner: Runner, problem: AnyProblem, inputs: Tensors, execution: Execution) -> None:
    """Raises :class:`ExecutionError` if no kernel was launched, the host used device memory, or an output is
    written in a run that skips the kernels.
    """
    if execution.host_uses:
        raise ExecutionError("; ".join(execution.host_uses))
    if not execution.launches:
        raise ExecutionError("it launches no kernel")
    try:
        idle = runner.run(problem, inputs, treatment=Treatment(skip_kernels=True))
    except ExecutionError:
        return  # the host code refuses to go on without its kernels' results
    written = [name for name, tensor in idle.outputs.items() if not is_unwritten(tensor)]
    if written:
        raise ExecutionError(f"{listed(written)}: written without a kernel, by cudaMemcpy or by host code")


def run_otherwise(runner: Runner, problem: AnyProblem, inputs: Tensors) -> Execution:
    """Runs again, with other choices wherever CUDA leaves behaviour unspecified."""
    offset = _OTHERWISE.offset_bytes
    elsewhere = {name: None if tensor is None else moved(tensor, offset) for name, tensor in inputs.items()}
    return runner.run(problem, elsewhere, treatment=_OTHERWISE)


def require_same_outputs(first: Execution, again: Execution) -> None:
    """Raises :class:`UnspecifiedOutput` unless both runs gave bit-identical outputs."""
    other = differing(first.outputs, again.outputs)
    if other:
        raise UnspecifiedOutput(
            f"{listed(other)}: other values in another order of blocks and warps, or with other values in "
            "memory that was never written",
            "Look for a race or a missing initialisation: ladder check. If the order may matter, as with "
            "atomicAdd of floats, say deterministic = false in stage.toml.",
        )


def larger_errors(first: Mapping[str, Deviation], again: Mapping[str, Deviation]) -> dict[str, Deviation]:
    """For each output the larger error of two runs, the first of which is allowed."""
    return {
        name: found if again[name].is_allowed and again[name].largest <= found.largest else again[name]
        for name, found in first.items()
    }
