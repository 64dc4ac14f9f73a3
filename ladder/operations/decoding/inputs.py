"""Inputs of a decoding problem: what a sequence does not have is NaN, and its place in a table is no page.

Keys and values in e4m3 are those of other problems, divided by a factor per kv head and rounded. The largest
becomes 448, the largest number of e4m3. The values that a stage gets are standard normal except for this
rounding, by at most 2^-4 of each, which adds less than 0.2% to their deviation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ladder.operations.attention.inputs import make_inputs as attention_inputs
from ladder.operations.attention.inputs import make_sinks, wide
from ladder.operations.decoding.problem import DecodingProblem

#: What the table has where a sequence has no page.
NO_PAGE = -1
LARGEST_E4M3 = 448.0


def make_inputs(problem: DecodingProblem, device: str = "cpu") -> dict[str, Any]:
    """Makes q, the caches, the lengths and the table of pages, the same on every machine."""
    q, k, v = attention_inputs(problem.attention)
    scales = [_descale(x) if problem.e4m3 else None for x in (k, v)]
    for b, length in enumerate(problem.all_lengths):
        k[b, :, length:] = torch.nan
        v[b, :, length:] = torch.nan
    table = None
    if problem.page_size:
        table = block_table(problem)
        k, v = (_to_pages(problem, x, table) for x in (k, v))
    k, v = (x if scale is None else _in_e4m3(x, scale) for x, scale in zip((k, v), scales, strict=True))
    if problem.strided:
        k, v = wide(k, more=1), wide(v, more=2)
    inputs = {
        "q": q,
        "k_cache": k,
        "v_cache": v,
        "seqused_k": torch.tensor(problem.all_lengths, dtype=torch.int32),
        "block_table": table,
        "sinks": make_sinks(problem.attention),
        "k_descale": scales[0],
        "v_descale": scales[1],
    }
    return {name: None if x is None else _moved(x, device) for name, x in inputs.items()}


def _descale(x: Tensor) -> Tensor:
    """The factor per kv head (Hkv) with which the elements of (B, Hkv, M, d) fit into e4m3."""
    return x.float().abs().amax((0, 2, 3)) / LARGEST_E4M3


def _in_e4m3(x: Tensor, descale: Tensor) -> Tensor:
    """Keys or values (.., Hkv, .., d), divided by their factors."""
    return (x.float() / descale[:, None, None]).to(torch.float8_e4m3fn)


def _moved(x: Tensor, device: str) -> Tensor:
    """The tensor on the device, with its strides: NaN beside its rows there, too."""
    if x.is_contiguous() or device == "cpu":
        return x.to(device)
    return wide(x.contiguous().to(device), more=x.stride(2) // x.shape[-1] - x.shape[1])


def pages_of(problem: DecodingProblem) -> list[int]:
    """The number of pages of each sequence."""
    return [-(-length // problem.page_size) for length in problem.all_lengths]


def page_count(problem: DecodingProblem) -> int:
    """The number of pages of the cache: those in use, and one more."""
    return sum(pages_of(problem)) + 1


def block_table(problem: DecodingProblem) -> Tensor:
    """Pages in an order drawn at random (B, table width), int32."""
    ids = torch.randperm(page_count(problem), generator=torch.Generator().manual_seed(1)).tolist()
    table = torch.full((problem.batch, problem.table_width), NO_PAGE, dtype=torch.int32)
    for b, count in enumerate(pages_of(problem)):
        for i in range(count):
            table[b, i] = ids.pop()
    return table


def _to_pages(problem: DecodingProblem, x: Tensor, table: Tensor) -> Tensor:
    """Moves keys or values (B, Hkv, M, d) into pages (pages, Hkv, page_size, d)."""
    size = problem.page_size
    shape = (page_count(problem), x.shape[1], size, x.shape[3])
    pages = torch.full(shape, torch.nan, dtype=x.dtype)
    for b, count in enumerate(pages_of(problem)):
        for i in range(count):
            rows = x[b, :, i * size : (i + 1) * size]
            pages[table[b, i], :, : rows.shape[1]] = rows
    return pages


def keys_of(
    cache: Tensor, table: Tensor | None, b: int, length: int, descale: Tensor | None = None
) -> Tensor:
    """The keys or values of sequence b, (Hkv, length, d), gathered from its pages if there are any; in
    float64 if they have a factor per kv head.
    """
    if descale is not None:
        return keys_of(cache.float().double(), table, b, length) * descale.double()[:, None, None]
    if table is None:
        return cache[b, :, :length]
    count = -(-length // cache.shape[2])
    pages = cache[table[b, :count].long()]
    return pages.transpose(0, 1).flatten(1, 2)[:, :length]


def indices(problem: DecodingProblem, last_table: Tensor | None) -> dict[str, Tensor]:
    """Lengths and table of a problem whose cache ends in the pages of a smaller one, of its last sequence."""
    found = {"seqused_k": torch.tensor(problem.all_lengths, dtype=torch.int32)}
    if last_table is not None:
        table = torch.full((problem.batch, problem.table_width), NO_PAGE, dtype=torch.int32)
        # The pages of the other sequences, in order; then those of the smaller cache.
        first, last_pages = 0, int(last_table.max()) + 2
        for b, count in enumerate(pages_of(problem)[:-1]):
            table[b, :count] = torch.arange(first, first + count, dtype=torch.int32)
            first += count
        moved = last_table[-1] + (page_count(problem) - last_pages)
        table[-1, : len(moved)] = moved.masked_fill(last_table[-1] == NO_PAGE, NO_PAGE)
        found["block_table"] = table
    return found
