"""Derives the decoding problem from given tensors, and checks the lengths and pages in them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations.addresses import numbers_of
from ladder.operations.attention.tensors import check_sinks, check_tensors
from ladder.operations.decoding.problem import DecodingProblem, check_length, check_page_size, check_splits
from ladder.operations.hstu.mask import check_window
from ladder.operations.hstu.tensors import check_integers, require_strided

_CACHE = "4: (batch, kv heads, keys, head_dim), or with a block_table (pages, kv heads, page_size, head_dim)"


def problem_of_cache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    seqused_k: Tensor,
    block_table: Tensor | None,
    is_causal: bool,
    scale: float | None,
    num_splits: int,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> DecodingProblem:
    """Derives the problem of q (B, H, N, d) and caches, whose lengths are not read: M is what the cache of a
    sequence holds, or as many pages as the table has for each.

    Raises :class:`InvalidProblem` and :class:`UnsupportedProblem`.
    """
    e4m3 = torch.float8_e4m3fn in {getattr(cache, "dtype", None) for cache in (k_cache, v_cache)}
    kv_dtype = torch.float8_e4m3fn if e4m3 else None
    dtype = check_tensors(q, k_cache, v_cache, _CACHE, ("query", "k_cache", "v_cache"), kv_dtype)
    for name, descale in (("k_descale", k_descale), ("v_descale", v_descale)):
        _check_descale(name, descale, k_cache, e4m3)
    if not isinstance(is_causal, bool):
        raise InvalidProblem(f"is_causal is {is_causal!r}; it must be True or False")
    check_splits(num_splits)
    left, right = _window(window_size)
    if sinks is not None:
        check_sinks(sinks, q)
    batch, heads, q_len, head_dim = q.shape
    check_integers("seqused_k", seqused_k, q, (batch,))
    page_size, kv_len = _sizes_of_cache(q, k_cache, block_table)
    return DecodingProblem(
        batch,
        heads,
        q_len,
        kv_len,
        head_dim,
        kv_heads=k_cache.shape[1],
        dtype=dtype,
        is_causal=is_causal or right == 0,
        scale=scale,
        strided=not (k_cache.is_contiguous() and v_cache.is_contiguous()),
        page_size=page_size,
        num_splits=num_splits,
        window=left if left >= 0 else None,
        softcap=softcap,
        sinks=sinks is not None,
        e4m3=e4m3,
    )


def _window(window_size: tuple[int, int]) -> tuple[int, int]:
    """A window that a decoding rung has. Raises :class:`InvalidProblem` or :class:`UnsupportedProblem`."""
    check_window(window_size)
    left, right = window_size
    if right > 0 or (left >= 0 and right < 0):
        raise UnsupportedProblem(
            f"window_size is {window_size}; no decoding rung has a window of keys after the query's own",
            "(left, 0) is causal, and (-1, -1) has no limits.",
        )
    return left, right


def _sizes_of_cache(q: Tensor, k_cache: Tensor, block_table: Tensor | None) -> tuple[int, int]:
    """The size of a page, 0 for a cache without pages, and the keys that a sequence may have. Raises
    :class:`InvalidProblem`.
    """
    batch, keys = len(q), k_cache.shape[2]
    if block_table is None:
        if len(k_cache) != batch:
            raise InvalidProblem(
                f"k_cache has batch {len(k_cache)} and query {batch}; they must be equal",
                "Pages of a cache need a block_table.",
            )
        return 0, keys
    check_integers("block_table", block_table, q, None)
    if block_table.dim() != 2 or len(block_table) != batch or not block_table.shape[1]:
        raise InvalidProblem(
            f"block_table is {tuple(block_table.shape)}; it must be ({batch}, pages per sequence)"
        )
    check_page_size(keys)
    return keys, block_table.shape[1] * keys


def _check_descale(name: str, descale: Tensor | None, cache: Tensor, e4m3: bool) -> None:
    """Raises :class:`InvalidProblem` unless caches in e4m3 have an fp32 number per head, and others none."""
    if descale is None and not e4m3:
        return
    heads = cache.shape[1]
    if not e4m3:
        raise InvalidProblem(f"{name} is of caches in torch.float8_e4m3fn, and k_cache is {cache.dtype}")
    if not isinstance(descale, Tensor):
        raise InvalidProblem(
            f"{name} is {descale!r}; caches in torch.float8_e4m3fn need ({heads},), one per kv head"
        )
    require_strided(**{name: descale})
    if descale.shape != (heads,) or descale.dtype != torch.float32 or descale.device != cache.device:
        raise InvalidProblem(
            f"{name} is {tuple(descale.shape)}, {descale.dtype} on {descale.device}; it must be ({heads},), "
            f"torch.float32 on {cache.device}"
        )


def check_descales(k_descale: Tensor, v_descale: Tensor) -> None:
    """Reads the factors. Raises :class:`InvalidProblem` if one is not finite: times the o of a sequence
    without keys, which is 0, it would be NaN.
    """
    for name, descale in (("k_descale", k_descale), ("v_descale", v_descale)):
        for head, factor in enumerate(numbers_of(descale)):
            if not math.isfinite(factor):
                raise InvalidProblem(f"{name}[{head}] is {factor}; a kv head's factor must be finite")


def check_lengths(
    problem: DecodingProblem, seqused_k: Tensor, block_table: Tensor | None, pages: int
) -> None:
    """Reads the lengths and the table. Raises :class:`InvalidProblem` if a sequence has more keys than its
    cache holds, or fewer than 0, or if a page that one of its keys is in is none of the cache's ``pages``.
    """
    lengths = numbers_of(seqused_k)
    for b, length in enumerate(lengths):
        check_length(b, length, problem.kv_len)
    if block_table is None:
        return
    used = -(-seqused_k[:, None] // problem.page_size)
    columns = torch.arange(block_table.shape[1], device=block_table.device)
    wrong = (columns < used) & ((block_table < 0) | (block_table >= pages))
    if bool(wrong.any()):
        b, i = wrong.nonzero()[0].tolist()
        raise InvalidProblem(
            f"block_table[{b}, {i}] is {int(block_table[b, i])}; sequence {b} has {lengths[b]} keys in "
            f"{int(used[b])} pages of {problem.page_size}, and the cache has the pages 0 to {pages - 1}"
        )
