"""Which rows of the sequence each rank holds, and which parts of the attention it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ladder.errors import InvalidProblem

ALL = slice(None)


@dataclass(frozen=True)
class Sizes:
    """Self-attention spread over ranks: rank r holds ``lengths[r]`` rows of q, k and v.

    ``element_bytes`` is that of their dtype. Gradients of K and V are sent in fp32. With ``offsets`` the rows
    are the tokens of several sequences, one after the other, which do not see each other: sequence b has the
    rows ``offsets[b]`` to ``offsets[b + 1] - 1``.
    """

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    lengths: tuple[int, ...]
    element_bytes: int = 2
    is_causal: bool = False
    offsets: tuple[int, ...] | None = None

    @property
    def ranks(self) -> int:
        return len(self.lengths)

    @property
    def rows(self) -> int:
        """The length N of the whole sequence."""
        return sum(self.lengths)

    def kv_elements(self, rank: int) -> int:
        """The number of elements of one rank's K and V together."""
        return 2 * self.batch * self.kv_heads * self.lengths[rank] * self.head_dim

    def kv_elements_but_of(self, rank: int) -> int:
        """The same of all other ranks."""
        return sum(self.kv_elements(other) for other in range(self.ranks) if other != rank)


@dataclass(frozen=True)
class Part:
    """One call of a kernel: a rank's own rows ``queries`` with the rows ``keys`` of each of ``sources``.

    The mask is that of the rungs, aligned to the upper left; where ``is_causal``, there is one source, the
    rank itself.
    """

    sources: tuple[int, ...]
    queries: slice
    keys: slice
    is_causal: bool

    def scores(self, sizes: Sizes, rank: int) -> int:
        """The number of visible (query, key) pairs per batch and head."""
        queries = len(range(sizes.lengths[rank])[self.queries])
        keys = sum(len(range(sizes.lengths[source])[self.keys]) for source in self.sources)
        return queries * (queries + 1) // 2 if self.is_causal else queries * keys


def even_lengths(rows: int, parts: int) -> tuple[int, ...]:
    """The lengths of so many consecutive chunks; the first ones are one longer if there is a remainder."""
    return tuple(rows // parts + (number < rows % parts) for number in range(parts))


def zigzag_chunks(rows: int, ranks: int, rank: int) -> tuple[int, int]:
    """The lengths of a rank's early and late chunk: of 2 R chunks, chunks r and 2 R - 1 - r."""
    lengths = even_lengths(rows, 2 * ranks)
    return lengths[rank], lengths[-1 - rank]


def places(sizes: Sizes, schedule: str, rank: int, rows: slice = ALL) -> tuple[range, ...]:
    """Where these rows of a rank lie in the whole sequence, in their order."""
    if schedule == "zigzag":
        lengths = even_lengths(sizes.rows, 2 * sizes.ranks)
        chunks = [(sum(lengths[:number]), lengths[number]) for number in (rank, 2 * sizes.ranks - 1 - rank)]
    else:
        chunks = [(sum(sizes.lengths[:rank]), sizes.lengths[rank])]
    begin, end, _ = rows.indices(sizes.lengths[rank])
    found = []
    for start, length in chunks:
        found.append(range(start, start + length)[max(begin, 0) : max(end, 0)])
        begin, end = begin - length, end - length
    return tuple(found)


def offsets_in(offsets: Sequence[int], rows: Sequence[range]) -> tuple[int, ...]:
    """The offsets of the same sequences among these rows of the whole alone, which are in their order."""
    return tuple(sum(min(max(mark, one.start), one.stop) - one.start for one in rows) for mark in offsets)


def shard_lengths(rows: int, ranks: int, schedule: str = "ring") -> tuple[int, ...]:
    """The number of rows that :func:`shard` gives to each rank."""
    if schedule == "zigzag":
        return tuple(sum(zigzag_chunks(rows, ranks, rank)) for rank in range(ranks))
    return even_lengths(rows, ranks)


def shard(tensor: Tensor, rank: int, ranks: int, schedule: str = "ring", dim: int = 2) -> Tensor:
    """The rows of ``tensor`` along ``dim`` that ``rank`` holds.

    For "zigzag" these are two chunks, an early one and a late one; for all other schedules they are one.
    Raises :class:`InvalidProblem` if there are fewer rows than chunks.
    """
    chunks = 2 * ranks if schedule == "zigzag" else ranks
    if tensor.shape[dim] < chunks:
        raise InvalidProblem(
            f"{tensor.shape[dim]} rows cannot be cut into {chunks} chunks", "Each chunk needs a row."
        )
    pieces = tensor.split(even_lengths(tensor.shape[dim], chunks), dim)
    if schedule == "zigzag":
        return torch.cat((pieces[rank], pieces[-1 - rank]), dim)
    return pieces[rank].contiguous()


def unshard(shards: Sequence[Tensor], schedule: str = "ring", dim: int = 2) -> Tensor:
    """The whole tensor, from the shards of all ranks in their order."""
    if schedule != "zigzag":
        return torch.cat([*shards], dim)
    rows, ranks = sum(one.shape[dim] for one in shards), len(shards)
    halves = [one.split(zigzag_chunks(rows, ranks, rank), dim) for rank, one in enumerate(shards)]
    return torch.cat([*(early for early, _ in halves), *(late for _, late in reversed(halves))], dim)
