"""Inputs of the tile library's tests, and the comparison of a kernel's output with the expected one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

INPUTS = ("random", "ones", "identity", "running")


class Result(NamedTuple):
    """A kernel's expected output, and the allowed error in ulps of ``around`` or else of the output itself.

    If it was written in the order of registers, ``places`` are those of a tile (two index tensors) or a
    vector (one).
    """

    name: str
    expected: Tensor
    ulps: float = 0.0
    around: Tensor | None = None
    places: tuple[Tensor, ...] | None = None


def matrix(kind: str, rows: int, cols: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Makes a matrix: ``random`` is normal; ``running`` numbers reveal row and column, neighbours differ."""
    if kind == "ones":
        return torch.ones(rows, cols, dtype=dtype)
    if kind == "identity":
        return torch.eye(rows, cols, dtype=dtype)
    if kind == "running":
        r, c = torch.meshgrid(torch.arange(rows), torch.arange(cols), indexing="ij")
        return ((r * 16 + c + seed) % 251 - 125).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, cols, generator=generator).to(dtype)


def ulp(x: Tensor) -> Tensor:
    """The spacing of x's dtype around x; around 0, that of the smallest normal number."""
    info = torch.finfo(x.dtype)
    magnitude = x.double().abs().nan_to_num(posinf=0).clamp(min=info.tiny)
    return info.eps * torch.exp2(torch.floor(torch.log2(magnitude)))


def size(results: Iterable[Result]) -> int:
    """The number of elements that the kernel writes."""
    return sum(r.expected.numel() if r.places is None else r.places[0].numel() for r in results)


def check(results: Iterable[Result], written: Tensor, what: str) -> None:
    """Compares the results with ``written``, which holds them one after another."""
    offset = 0
    for name, whole, ulps, around, places in results:
        expected = whole if places is None else whole[places]
        if around is not None and places is not None:
            around = around[places]
        got = written.flatten()[offset : offset + expected.numel()].view(expected.shape)
        offset += expected.numel()
        if torch.equal(got, expected):
            continue
        wrong = (got.double() - expected.double()).abs() > ulps * ulp(expected if around is None else around)
        wrong |= got.isnan() != expected.isnan()
        wrong &= ~((got == expected) | (got.isnan() & expected.isnan()))
        if wrong.any():
            index = tuple(wrong.nonzero()[0].tolist())
            place = index if places is None else tuple(int(p[index]) for p in places)
            pytest.fail(
                f"{name} of {what}: {int(wrong.sum())} of {wrong.numel()} differ; at {place} it is "
                f"{got[index].item()}, not {expected[index].item()}"
            )
    assert offset == written.numel()


def flushed(x: Tensor) -> Tensor:
    """Flushes subnormal fp32 numbers, as the special-function unit does."""
    tiny = torch.finfo(torch.float32).tiny
    return torch.where(x.float().abs() < tiny, torch.zeros_like(x), x)
