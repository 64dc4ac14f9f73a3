"""What calls of the same kind share, kept for as long as the process runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from torch import Tensor

T = TypeVar("T")
#: What tells calls apart; empty for a call that cannot be told from others.
Kind = tuple[Any, ...]


def kind_of(tensors: Sequence[Tensor | None], *choices: Any) -> Kind:
    """The kind of a call: the shapes, strides, dtypes, devices and layouts of its tensors and whether memory
    has their negatives, its other arguments with their types (1 == True, but 1 is refused), and where rungs
    are looked for. Empty if something is no tensor or has no strides; those of a sparse one may be 0.
    """
    try:
        layouts = [
            None if x is None else (x.shape, x.stride(), x.dtype, x.device, x.layout, x.is_neg())
            for x in tensors
        ]
    except (AttributeError, RuntimeError):
        return ()
    return (*layouts, choices, *map(type, choices), os.environ.get("LADDER_STAGES"))


def strides_of(tensors: Sequence[Tensor | None]) -> Kind:
    """What may differ between backward passes of one forward run. Hooks of saved tensors keep values, sizes,
    dtypes and devices, but not strides: a tensor that was on the host meanwhile may come back contiguous. A
    gradient may be the negative of what is in memory.
    """
    return tuple([None if x is None else (x.stride(), x.is_neg()) for x in tensors])  # no generator: faster


class Kept(Generic[T]):
    """Values by the kind of the calls that share them; when there are ``most``, all are forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Kind, T] = {}

    def get(self, kind: Kind) -> T | None:
        """The value that is kept, if any; of a kind without a hash there is none."""
        try:
            return self._values.get(kind)
        except TypeError:
            return None

    def keep(self, kind: Kind, value: T) -> None:
        """Keeps the value, unless the kind is empty or has no hash."""
        if not kind:
            return
        if len(self._values) >= self._most:
            self._values.clear()
        with suppress(TypeError):
            self._values[kind] = value

    def values(self) -> list[T]:
        return [*self._values.values()]

    def clear(self) -> None:
        self._values.clear()
