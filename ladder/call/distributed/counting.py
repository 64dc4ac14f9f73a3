"""A process group that counts the bytes that its rank sends, so that formulas can be compared with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

BACKEND = "counting"


class CountingGroup(dist.ProcessGroup):
    """Passes all calls on to a gloo group, and adds up in ``sent_bytes`` what this rank sends to others.

    A gather counts once for each other rank, as in NCCL's ring, and an all-to-all without the rank's own
    piece.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._inner: Any = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._inner)
        self.sent_bytes = 0

    def send(self, tensors: list[Tensor], *arguments: Any, **options: Any) -> Any:
        self.sent_bytes += sum(x.nbytes for x in tensors)
        return self._inner.send(tensors, *arguments, **options)

    def recv(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.recv(*arguments, **options)

    def allgather(  # type: ignore[override]
        self, outputs: Any, tensors: Any, *arguments: Any, **options: Any
    ) -> Any:
        self.sent_bytes += (self.size() - 1) * sum(x.nbytes for x in tensors)
        return self._inner.allgather(outputs, tensors, *arguments, **options)

    def alltoall_base(  # type: ignore[override]
        self, output: Any, x: Any, counts: Any, sizes: Any, *arguments: Any, **options: Any
    ) -> Any:
        self.sent_bytes += x.nbytes - sizes[self.rank()] * x.element_size()
        return self._inner.alltoall_base(output, x, counts, sizes, *arguments, **options)


def counting_group(timeout: timedelta) -> CountingGroup:
    """A new group of all ranks, which counts; all must call it."""
    if BACKEND.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(BACKEND, CountingGroup, devices=["cpu"])
    group = dist.new_group(backend=BACKEND, timeout=timeout)
    assert isinstance(group, CountingGroup)
    return group
