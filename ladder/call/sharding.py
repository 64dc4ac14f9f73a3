"""Attention of DTensors: each GPU computes its batches or its heads, without communication."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch


def prepare(*tensors: Any) -> None:
    """Tells torch, once, how the operators may be sharded, if one of the tensors is a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")  # without it there are none
    if module is not None and any(isinstance(one, module.DTensor) for one in tensors):
        _register()


@cache
def _register() -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    whole, batch, heads = Replicate(), Shard(0), Shard(1)

    def ways(key: Any, sinks: Any) -> list[tuple[Any, Any]]:
        """A placement of the tensors, with that of sinks (H), and whether d_sinks is a sum over GPUs.

        Heads are sharded only if each GPU has whole groups of them.
        """
        found: list[tuple[Any, Any]] = [(whole, whole), (batch, whole)]
        if all(key.shape[1] % size == 0 for size in key.mesh.shape):
            found.append((heads, Shard(0)))
        return [(place, None if sinks is None else of_sinks) for place, of_sinks in found]

    def of_others(given: tuple[Any, ...], sinks: Any) -> list[Any]:
        """Of the arguments after the tensors, with sinks as the last one if there are any."""
        return [None] * (len(given) - (sinks is not None))

    def sinks_of(given: tuple[Any, ...]) -> Any:
        return given[-1] if given and hasattr(given[-1], "tensor_meta") else None

    def attention(query: Any, key: Any, value: Any, *given: Any) -> list[Any]:
        del query, value
        sinks = sinks_of(given)
        return [
            (
                [place] * 2,
                [*[place] * 3, *of_others(given, sinks), *([of_sinks] if sinks is not None else [])],
            )
            for place, of_sinks in ways(key, sinks)
        ]

    def attention_backward(d_o: Any, d_lse: Any, query: Any, key: Any, *given: Any) -> list[Any]:
        """``given`` begins with value, o and lse."""
        del d_o, query
        sinks = sinks_of(given[3:])
        found = []
        for place, of_sinks in ways(key, sinks):
            of_d_sinks = whole if sinks is None else Partial() if place == batch else of_sinks
            inputs = [place, None if d_lse is None else place, *[place] * 5, *of_others(given[3:], sinks)]
            found.append(([place] * 3 + [of_d_sinks], inputs + ([of_sinks] if sinks is not None else [])))
        return found

    register_sharding(torch.ops.ladder.attention.default)(attention)
    register_sharding(torch.ops.ladder.attention_backward.default)(attention_backward)


def _is_tensor(given: Any) -> bool:
    """Whether it stands for a DTensor in a sharding function."""
    return hasattr(given, "tensor_meta")
