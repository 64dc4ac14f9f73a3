"""Tensors in memory that this process shares with the one that runs a stage."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import Tensor

from ladder.common.files import MAP_NORESERVE
from ladder.operations import Tensors

#: The pages of a tensor hold nothing else.
_PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in an arena; ``begin`` is the offset of its first element in bytes."""

    begin: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """From the first element to the end of the last, including gaps between strided rows."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.dtype.itemsize


def view(memory: Tensor, place: Place) -> Tensor:
    """The tensor at that place in memory, given as bytes."""
    whole = memory[place.begin : place.begin + place.bytes].view(place.dtype)
    return whole.as_strided(place.shape, place.strides)


def mapped(descriptor: int) -> Tensor:
    """The bytes of an arena; they stay mapped as long as a tensor uses them."""
    memory = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | MAP_NORESERVE)
    return torch.frombuffer(memory, dtype=torch.uint8)


class Arena:
    """Tensors by name in a file in memory, which a process gets with its ``descriptor``."""

    def __init__(
        self, places: Mapping[str, Place], size_bytes: int, storages: Mapping[str, Place] | None = None
    ) -> None:
        self.places = places
        self._storages = storages or {}
        self.descriptor = os.memfd_create("ladder")
        os.truncate(self.descriptor, max(size_bytes, _PAGE))
        self._memory = mapped(self.descriptor)

    @classmethod
    def of(cls, tensors: Tensors) -> Arena:
        """An arena with copies of the tensors: with their strides, the memory that they share, and what lies
        between their elements and around them.
        """
        starts: dict[int, int] = {}
        places: dict[str, Place] = {}
        storages: dict[str, Place] = {}
        size = 0
        present = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        for name, tensor in present.items():
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in starts:
                starts[storage.data_ptr()] = size
                size += _whole_pages(storage.nbytes())
            start, item = starts[storage.data_ptr()], tensor.element_size()
            begin = start + int(tensor.storage_offset()) * item
            places[name] = Place(begin, tensor.dtype, tuple(tensor.shape), tensor.stride())
            storages[name] = Place(start, tensor.dtype, (int(storage.nbytes()) // item,), (1,))
        arena = cls(places, size, storages)
        for name, tensor in present.items():
            whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
            arena.whole(name).copy_(whole)
        return arena

    @classmethod
    def reserved(cls, tensors: Mapping[str, tuple[Sequence[int], torch.dtype]]) -> Arena:
        """An arena of zeros, by shape and dtype, which take no memory until they are touched."""
        places: dict[str, Place] = {}
        size = 0
        for name, (shape, dtype) in tensors.items():
            strides = [math.prod(shape[dimension + 1 :]) for dimension in range(len(shape))]
            places[name] = Place(size, dtype, tuple(shape), tuple(strides))
            size += _whole_pages(places[name].bytes)
        return cls(places, size)

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def __getitem__(self, name: str) -> Tensor:
        return view(self._memory, self.places[name])

    def get(self, name: str) -> Tensor | None:
        """The tensor of that name, or None if there is none."""
        return self[name] if name in self.places else None

    def whole(self, name: str) -> Tensor:
        """All elements of the memory of which the tensor is a part."""
        return view(self._memory, self._storages[name])

    @property
    def bytes(self) -> int:
        return self._memory.numel()


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
