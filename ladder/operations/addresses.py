"""Tensors without memory that a kernel could read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ladder.errors import InvalidProblem

#: An address above it is one of memory. torch's address of a view whose storage was freed is the offset of
#: the view in bytes, which is less.
LARGEST_OFFSET = 2**40


class NoAddress(RuntimeError):
    """A tensor has elements outside of memory."""


def address_of(tensor: Tensor) -> int:
    """The address of a tensor's elements, 0 if there are none. Raises :class:`NoAddress`; torch raises
    RuntimeError for a tensor without storage.
    """
    address = tensor.data_ptr()
    if not tensor.numel():
        return address
    offset = tensor.storage_offset() * tensor.element_size()
    if address == offset or offset + extent_bytes(tensor) > tensor.untyped_storage().nbytes():
        raise NoAddress("a tensor has elements outside of memory")
    return address


def extent_bytes(tensor: Tensor) -> int:
    """The bytes from the first element to the end of the last, including gaps between strided rows."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def in_memory(name: str, tensor: Tensor) -> Tensor:
    """torch's zero tensor, which autograd passes as a gradient and which has no memory, as zeros with the
    same strides; other tensors as they are. Raises :class:`InvalidProblem` for those without memory.
    """
    if _has_memory(tensor):
        return tensor
    if not tensor._is_zerotensor():
        why, hint = _explained(tensor)
        raise InvalidProblem(f"{name} {why}", hint)
    zeros = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return zeros.zero_()


def require_memory(name: str, tensor: Tensor) -> None:
    """Raises :class:`InvalidProblem` for a tensor without memory, except torch's zero tensor."""
    if not tensor._is_zerotensor():
        in_memory(name, tensor)


def numbers_of(vector: Tensor) -> list[Any]:
    """The numbers of a vector, which are read."""
    numbers: list[Any] = (vector.clone() if vector._is_zerotensor() else vector).tolist()
    return numbers


def _has_memory(tensor: Tensor) -> bool:
    try:
        address_of(tensor)
    except RuntimeError:
        return False
    return True


def _explained(tensor: Tensor) -> tuple[str, str]:
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        kind = type(tensor).__name__
        return f"is of type {kind}, without memory of its own", "Pass the tensor that it wraps."
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return (
            "belongs to a transform of torch.func that has ended",
            "Pass what the transformed function returned.",
        )
    if torch._is_functional_tensor(tensor):
        return "is a functional tensor, without memory of its own", "Pass the tensor that it wraps."
    if tensor.is_meta:
        return "is on meta, where tensors have no memory", "Pass one on the CPU or a CUDA GPU."
    left = tensor.untyped_storage().nbytes()
    what = "has elements outside of its storage, which" if left else "has no memory: its storage"
    return f"{what} was resized to {left} bytes", "Resize the storage before the call."
