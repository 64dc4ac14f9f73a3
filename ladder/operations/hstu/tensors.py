"""Derives the HSTU problem from given tensors, with the inputs of the C++ struct."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations.addresses import numbers_of, require_memory
from ladder.operations.base import torch_dtypes
from ladder.operations.hstu.inputs import row_stride
from ladder.operations.hstu.problem import HstuProblem

#: 16-byte copies move 8 elements of 16 bits, so rows must begin at multiples of these.
_ALIGNED_ELEMENTS, _ALIGNED_BYTES = 8, 16


class HstuPages(NamedTuple):
    """The keys and values of histories in pages of a cache.

    Sequence b has the pages ``page_ids[page_offsets[b]]`` to ``page_ids[page_offsets[b + 1] - 1]`` of the
    cache, the last of which holds ``last_page_lens[b]`` tokens. Everything but the cache is int32.

    >>> cache = torch.zeros(3, 2, 16, 2, 64, dtype=torch.float16)
    >>> offsets, ids, lengths = (torch.tensor(x, dtype=torch.int32) for x in ([0, 2, 3], [2, 0, 1], [4, 16]))
    >>> ladder.HstuPages(cache, offsets, ids, lengths).page_ids.tolist()
    [2, 0, 1]
    """

    kv_cache: Tensor  #: (pages, 2, page_size, H, d): keys, then values
    page_offsets: Tensor  #: (B + 1)
    page_ids: Tensor  #: (pages in use)
    last_page_lens: Tensor  #: (B)


def hstu_problem_of_tensors(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None,
    *,
    rab: Tensor | None,
    num_contexts: Tensor | None,
    num_targets: Tensor | None,
    intervals: Tensor | None,
    pages: HstuPages | None,
    **choices: Any,
) -> tuple[HstuProblem, Tensor]:
    """Derives the problem of these tensors, and the offsets of the keys' sequences; ``choices`` are the
    problem's other fields.

    Reads the int32 tensors, which synchronises with a GPU. Raises :class:`InvalidProblem` and
    :class:`UnsupportedProblem`.
    """
    dtype = _check_tokens(query, key, value)
    q_lens = sequence_lengths("cu_seqlens_q", cu_seqlens_q, query, "query")
    contexts = _counts("num_contexts", num_contexts, query, len(q_lens))
    targets = _counts("num_targets", num_targets, query, len(q_lens))
    if pages is not None:
        if cu_seqlens_k is not None:
            raise InvalidProblem("cu_seqlens_k and pages both say how many keys there are", "Leave it out.")
        _same_tokens(key, query, "with pages they have the same tokens")
        kv_lens = _paged_lengths(pages, query, targets or (0,) * len(q_lens))
        cu_seqlens_k = torch.tensor([0, *kv_lens], device=query.device).cumsum(0).int()
    elif cu_seqlens_k is not None:
        kv_lens = sequence_lengths("cu_seqlens_k", cu_seqlens_k, key, "key")
    else:
        _same_tokens(key, query, "without cu_seqlens_k they have the same tokens")
        kv_lens, cu_seqlens_k = q_lens, cu_seqlens_q
    if intervals is not None:
        _check_intervals(intervals, query)
    problem = HstuProblem(
        query.shape[1],
        query.shape[2],
        q_lens,
        None if kv_lens == q_lens else kv_lens,
        contexts=contexts,
        targets=targets,
        intervals=intervals is not None,
        bias_heads=0 if rab is None else _bias_heads(rab),
        page_size=0 if pages is None else pages.kv_cache.shape[2],
        dtype=dtype,
        **choices,
    )
    if rab is not None:
        _check_bias(rab, query, problem)
    return problem, cu_seqlens_k


def padded_bias(rab: Tensor) -> Tensor:
    """Copies the bias to the row stride that the kernels need; differentiable."""
    longest = rab.shape[-1]
    return F.pad(rab, (0, row_stride(longest) - longest)).contiguous()


def _check_tokens(query: Tensor, key: Tensor, value: Tensor) -> str:
    """Checks that three tensors (tokens, H, d) go together; returns their dtype."""
    dtypes = {dtype: name for name, dtype in torch_dtypes().items() if name != "i32"}
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise InvalidProblem(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
        require_strided(**{name: tensor})
        if tensor.dim() != 3:
            raise InvalidProblem(
                f"{name} has {tensor.dim()} dimensions; it must have 3: "
                "(tokens of all sequences, heads, head_dim)"
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise InvalidProblem(f"{name} is on {tensor.device}; it must be on the CPU or a CUDA GPU")
        require_memory(name, tensor)
        _same_device(name, tensor, query)
        if tensor.dtype not in dtypes:
            known = ", ".join(map(str, dtypes))
            raise UnsupportedProblem(f"{name} is {tensor.dtype}; it must be one of {known}")
        if tensor.dtype != query.dtype:
            raise InvalidProblem(f"{name} is {tensor.dtype} and query {query.dtype}; all must have one dtype")
        if tensor.shape[1:] != query.shape[1:]:
            raise InvalidProblem(
                f"{name} has {tuple(tensor.shape[1:])} heads and head_dim, query {tuple(query.shape[1:])}; "
                "they must be equal"
            )
        _check_rows(name, tensor)
    if key.shape != value.shape:
        raise InvalidProblem(
            f"key is {tuple(key.shape)} and value {tuple(value.shape)}; they must have the same shape"
        )
    return dtypes[query.dtype]


def _check_rows(name: str, tensor: Tensor) -> None:
    """Checks that the heads of a token are contiguous; tokens may be strided, like slices of wider rows."""
    head_dim = tensor.shape[2]
    apart = tensor.stride(0)
    side_by_side = tensor[:1].is_contiguous() and apart > 0
    if not side_by_side or apart % _ALIGNED_ELEMENTS or tensor.data_ptr() % _ALIGNED_BYTES:
        raise InvalidProblem(
            f"{name} has the strides {tensor.stride()} and begins at the address {tensor.data_ptr():#x}; a "
            f"token's heads must lie side by side, ({head_dim}, 1), and tokens a multiple of "
            f"{_ALIGNED_BYTES} bytes apart",
            f"Pass {name}.clone(memory_format=torch.contiguous_format).",
        )


def require_strided(**tensors: Tensor) -> None:
    """Raises :class:`InvalidProblem` for a nested or sparse tensor, which has no strides."""
    for name, tensor in tensors.items():
        if tensor.is_nested:
            raise InvalidProblem(
                f"{name} is a nested tensor; it must be a plain one",
                "ladder.varlen_attention takes a jagged tensor's values(), as (tokens, H, d), and "
                "offsets().int().",
            )
        if tensor.layout != torch.strided:
            raise InvalidProblem(f"{name} is {tensor.layout}; it must be dense", f"Pass {name}.to_dense().")


def _same_device(name: str, tensor: Tensor, query: Tensor) -> None:
    if tensor.device != query.device:
        raise InvalidProblem(
            f"{name} is on {tensor.device} and query on {query.device}; all must be on one device"
        )


def _same_tokens(key: Tensor, query: Tensor, why: str) -> None:
    if len(key) != len(query):
        raise InvalidProblem(f"key has {len(key)} tokens and query {len(query)}; {why}")


def check_integers(name: str, tensor: Tensor, query: Tensor, shape: tuple[int, ...] | None) -> None:
    """Raises :class:`InvalidProblem` unless it is a contiguous int32 tensor on query's device, of this shape
    if there is one.
    """
    if not isinstance(tensor, Tensor):
        raise InvalidProblem(
            f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor of int32",
            f"Pass torch.tensor({name}, dtype=torch.int32, device=query.device).",
        )
    require_strided(**{name: tensor})
    require_memory(name, tensor)
    if tensor.dtype != torch.int32:
        raise InvalidProblem(f"{name} is {tensor.dtype}; it must be torch.int32", f"Pass {name}.int().")
    _same_device(name, tensor, query)
    if shape is not None and tensor.shape != shape:
        raise InvalidProblem(f"{name} is {tuple(tensor.shape)}; it must be {shape}")
    if not tensor.is_contiguous():
        raise InvalidProblem(f"{name} is not contiguous", f"Pass {name}.contiguous().")


def _check_intervals(intervals: Tensor, query: Tensor) -> None:
    check_integers("intervals", intervals, query, None)
    if intervals.dim() != 2 or intervals.shape[0] % 2 == 0 or intervals.shape[1] != len(query):
        raise InvalidProblem(
            f"intervals are {tuple(intervals.shape)}; wanted (an odd number of bounds, {len(query)} tokens)"
        )


def _counts(name: str, counts: Tensor | None, query: Tensor, sequences: int) -> tuple[int, ...] | None:
    """The numbers of contexts or targets, one a sequence."""
    return None if counts is None else tuple(_numbers(name, counts, query, (sequences,)))


def _numbers(name: str, tensor: Tensor, query: Tensor, shape: tuple[int, ...]) -> list[int]:
    check_integers(name, tensor, query, shape)
    return [int(number) for number in numbers_of(tensor)]


def _offsets(name: str, offsets: Tensor, query: Tensor, count: int, of: str) -> list[int]:
    """Checks that offsets go from 0 to ``count`` without decreasing; returns them."""
    check_integers(name, offsets, query, None)
    if offsets.dim() != 1 or len(offsets) < 2:
        raise InvalidProblem(f"{name} is {tuple(offsets.shape)}; it must be (sequences + 1,)")
    values = [int(value) for value in numbers_of(offsets)]
    if values[0] != 0:
        raise InvalidProblem(f"{name} begins with {values[0]}; the first sequence begins at 0")
    for b, (first, end) in enumerate(pairwise(values)):
        if end < first:
            raise InvalidProblem(f"{name} decreases from {first} to {end} at sequence {b}")
    if values[-1] != count:
        raise InvalidProblem(f"{name} ends with {values[-1]}; {of} {count}")
    return values


def sequence_lengths(name: str, offsets: Tensor, tokens: Tensor, of: str) -> tuple[int, ...]:
    """The lengths of the sequences of ``tokens``, named ``of``, that begin at these offsets, which are read.

    Raises :class:`InvalidProblem` unless the offsets go from 0 to all tokens without decreasing.
    """
    values = _offsets(name, offsets, tokens, len(tokens), f"the tokens of {of} are")
    return tuple(end - first for first, end in pairwise(values))


def _paged_lengths(pages: HstuPages, query: Tensor, targets: tuple[int, ...]) -> tuple[int, ...]:
    """The number of keys in each sequence's pages plus its targets."""
    cache = pages.kv_cache
    heads, head_dim = query.shape[1:]
    if cache.dim() != 5 or cache.shape[1] != 2 or cache.shape[3:] != (heads, head_dim):
        raise InvalidProblem(
            f"kv_cache is {tuple(cache.shape)}; it must be (pages, 2, page_size, {heads}, {head_dim})"
        )
    if cache.dtype != query.dtype:
        raise InvalidProblem(f"kv_cache is {cache.dtype} and query {query.dtype}; they must have one dtype")
    _same_device("kv_cache", cache, query)
    if not cache.is_contiguous():
        raise InvalidProblem("kv_cache is not contiguous", "Pass kv_cache.contiguous().")
    ids = _numbers("page_ids", pages.page_ids, query, tuple(pages.page_ids.shape[:1]))
    for place, page in enumerate(ids):
        if not 0 <= page < len(cache):
            raise InvalidProblem(
                f"page_ids[{place}] is {page}; the cache has the pages 0 to {len(cache) - 1}"
            )
    offsets = _offsets("page_offsets", pages.page_offsets, query, len(ids), "the pages in page_ids are")
    if len(offsets) != len(targets) + 1:
        raise InvalidProblem(f"page_offsets has {len(offsets)} numbers for {len(targets)} sequences")
    last = _numbers("last_page_lens", pages.last_page_lens, query, (len(targets),))
    lengths = []
    for b, (first, end) in enumerate(pairwise(offsets)):
        if end > first and not 1 <= last[b] <= cache.shape[2]:
            raise InvalidProblem(
                f"last_page_lens[{b}] is {last[b]}; a page that is in use holds 1 to {cache.shape[2]} tokens"
            )
        history = (end - first - 1) * cache.shape[2] + last[b] if end > first else 0
        lengths.append(history + targets[b])
    return tuple(lengths)


def _bias_heads(rab: Tensor) -> int:
    if not isinstance(rab, Tensor):
        raise InvalidProblem(f"rab is a {type(rab).__name__}; it must be a torch.Tensor")
    require_strided(rab=rab)
    require_memory("rab", rab)
    if rab.dim() != 4:
        raise InvalidProblem(
            f"rab has {rab.dim()} dimensions; it must have 4: (sequences, 1 or heads, keys, keys)"
        )
    return rab.shape[1]


def _check_bias(rab: Tensor, query: Tensor, problem: HstuProblem) -> None:
    longest = max(problem.all_kv_lens)
    shape = (problem.batch, problem.bias_heads, longest, longest)
    if rab.shape != shape:
        raise InvalidProblem(f"rab is {tuple(rab.shape)}; it must be {shape}, the longest sequence's keys")
    if rab.dtype != query.dtype:
        raise InvalidProblem(
            f"rab is {rab.dtype} and query {query.dtype}; they must have one dtype",
            f"Pass rab.to({query.dtype}).",
        )
    _same_device("rab", rab, query)
