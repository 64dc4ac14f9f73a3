"""Float64 references, kept while the process runs: the rungs of a ladder are tried on the same problems."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ladder.operations import AnyProblem, Reference, Tensors, operation_of

if TYPE_CHECKING:
    from torch import Tensor

#: What the references that are kept take, at most.
_MOST_BYTES = 2**29
_kept: OrderedDict[tuple[AnyProblem, str], Reference] = OrderedDict()


def reference_of(problem: AnyProblem, inputs: Tensors) -> Reference:
    """The reference for these inputs, computed only once for the same bits in memory of the CPU."""
    if any(tensor is not None and tensor.device.type != "cpu" for tensor in inputs.values()):
        return operation_of(problem).reference(problem, inputs)
    key = (problem, _digest(inputs))
    found = _kept.pop(key, None)
    if found is None:
        found = operation_of(problem).reference(problem, inputs)
    _kept[key] = found
    while _kept and sum(map(_bytes, _kept.values())) > _MOST_BYTES:
        _kept.popitem(last=False)
    return found


def _digest(inputs: Tensors) -> str:
    import torch

    made = hashlib.blake2b()
    for name, tensor in inputs.items():
        made.update(f"{name} {None if tensor is None else (tensor.shape, tensor.dtype)}".encode())
        if tensor is not None:
            made.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()


def _bytes(reference: Reference) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(reference))


def _tensors(reference: Reference) -> Iterator[Tensor]:
    found: list[Any] = [*reference.outputs.values(), *reference.limits.values()]
    found += [spread.deviations for spread in reference.spreads.values()]
    yield from (one for one in found if hasattr(one, "element_size"))
