"""Inputs of an HSTU problem, by the names of the C++ struct's fields."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ladder.errors import InvalidProblem
from ladder.operations.base import torch_dtypes
from ladder.operations.hstu.problem import INTERVAL_BOUNDS, HstuProblem


def make_inputs(problem: HstuProblem, device: str = "cpu") -> dict[str, Any]:
    """Makes all inputs, the same on every machine; optional ones that the problem lacks are None.

    With pages, k and v have q's tokens, and are NaN except for the targets.
    """
    if problem.dtype is None:
        raise InvalidProblem(f"{problem} has no dtype")
    dtype = torch_dtypes()[problem.dtype]
    generator = torch.Generator().manual_seed(0)
    total_q, total_k = sum(problem.q_lens), sum(problem.all_kv_lens)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    size = (problem.heads, problem.head_dim)
    q, k, v = draw(total_q, *size), draw(total_k, *size), draw(total_k, *size)
    if problem.inputs == "large":
        q, k = q * 4, k * 4
    pages: dict[str, Tensor | None] = dict.fromkeys(
        ("kv_cache", "page_offsets", "page_ids", "last_page_lens")
    )
    if problem.page_size:
        pages, k, v = _to_pages(problem, k, v, generator)
    if problem.inputs == "strided":
        # Each in rows of another width, so that a kernel that uses the strides of the wrong one shows.
        q, k, v = (
            torch.cat([x, torch.full_like(x[:, :1], torch.nan).expand(-1, more, -1)], 1)
            for more, x in enumerate((q, k, v), start=1)
        )
    inputs: dict[str, Any] = {
        **{name: x.to(dtype) for name, x in (("q", q), ("k", k), ("v", v))},
        "rab": _bias(problem, generator, dtype),
        "cu_seqlens_q": _offsets(problem.q_lens),
        "cu_seqlens_k": _offsets(problem.all_kv_lens),
        "num_contexts": _numbers(problem.contexts),
        "num_targets": _numbers(problem.targets),
        "intervals": _intervals(problem, generator) if problem.intervals else None,
        **{name: x if x is None or x.dtype == torch.int32 else x.to(dtype) for name, x in pages.items()},
    }
    return {name: None if x is None else x.to(device) for name, x in inputs.items()}


def indices(problem: HstuProblem, last_page_ids: Tensor | None) -> dict[str, Tensor]:
    """Offsets and numbers of a problem whose cache ends in the pages of a smaller one, in their order."""
    found = {
        "cu_seqlens_q": _offsets(problem.q_lens),
        "cu_seqlens_k": _offsets(problem.all_kv_lens),
        "num_contexts": _numbers(problem.contexts),
        "num_targets": _numbers(problem.targets),
    }
    if last_page_ids is not None:
        counts = pages_of(problem)
        first = sum(counts) - len(last_page_ids)
        found["page_offsets"] = _offsets(counts)
        found["page_ids"] = torch.cat([torch.arange(first, dtype=torch.int32), last_page_ids + first])
        found["last_page_lens"] = _last_page_lens(problem)
    return {name: x for name, x in found.items() if x is not None}


def pages_of(problem: HstuProblem) -> tuple[int, ...]:
    """The number of pages of each sequence's history; none without a cache."""
    if not problem.page_size:
        return ()
    return tuple(-(-length // problem.page_size) for length in _histories(problem))


def _histories(problem: HstuProblem) -> list[int]:
    return [problem.sequence(b)[1] - problem.sequence(b)[3] for b in range(problem.batch)]


def _last_page_lens(problem: HstuProblem) -> Tensor:
    lengths = [
        length - (count - 1) * problem.page_size
        for length, count in zip(_histories(problem), pages_of(problem), strict=True)
    ]
    return torch.tensor(lengths, dtype=torch.int32)


def row_stride(longest: int) -> int:
    """Elements from one row of the bias to the next: the longest sequence, rounded up to 16 bytes."""
    return -(-longest // 8) * 8


def bias_shape(problem: HstuProblem) -> tuple[int, ...]:
    """(B, bias heads, longest sequence, :func:`row_stride` of it)."""
    longest = max(problem.all_kv_lens)
    return (problem.batch, problem.bias_heads, longest, row_stride(longest))


def _bias(problem: HstuProblem, generator: torch.Generator, dtype: torch.dtype) -> Tensor | None:
    if not problem.bias_heads:
        return None
    rab = torch.randn(*bias_shape(problem), generator=generator)
    rab[..., max(problem.all_kv_lens) :] = torch.nan  # the padding between rows
    return rab.to(dtype)


def _offsets(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def _numbers(values: tuple[int, ...] | None) -> Tensor | None:
    return None if values is None else torch.tensor(values, dtype=torch.int32)


def _intervals(problem: HstuProblem, generator: torch.Generator) -> Tensor:
    """Draws intervals (bounds, total_q): a prefix of up to half of the keys, and one interval anywhere."""
    columns = []
    for q_len, kv_len in zip(problem.q_lens, problem.all_kv_lens, strict=True):
        prefix = torch.randint(0, kv_len // 2 + 1, (1, q_len), generator=generator)
        ends = torch.randint(0, kv_len + 1, (INTERVAL_BOUNDS - 1, q_len), generator=generator)
        columns.append(torch.cat([prefix, ends.sort(0).values]))
    return torch.cat(columns, 1).int()


def _to_pages(
    problem: HstuProblem, k: Tensor, v: Tensor, generator: torch.Generator
) -> tuple[dict[str, Tensor | None], Tensor, Tensor]:
    """Moves keys and values into a cache. Returns it with its tables, and k and v reduced to the targets at
    the end of each sequence.
    """
    size = problem.page_size
    counts = pages_of(problem)
    ids = torch.randperm(sum(counts), generator=generator)
    cache = torch.full((sum(counts), 2, size, problem.heads, problem.head_dim), torch.nan)
    rest_k = torch.full((sum(problem.q_lens), *k.shape[1:]), torch.nan)
    rest_v = rest_k.clone()
    page = k_first = q_end = 0
    for b, length in enumerate(_histories(problem)):
        q_len, kv_len, _, targets = problem.sequence(b)
        q_end += q_len
        for x, (tensor, rest) in enumerate(((k, rest_k), (v, rest_v))):
            for i, rows in enumerate(tensor[k_first : k_first + length].split(size)):
                cache[ids[page + i], x, : len(rows)] = rows
            rest[q_end - targets : q_end] = tensor[k_first + length : k_first + kv_len]
        page += counts[b]
        k_first += kv_len
    tables: dict[str, Tensor | None] = {
        "kv_cache": cache,
        "page_offsets": _offsets(counts),
        "page_ids": ids.int(),
        "last_page_lens": _last_page_lens(problem),
    }
    return tables, rest_k, rest_v
