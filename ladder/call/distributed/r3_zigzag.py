"""r3_zigzag: the same work on each rank under a causal mask.

The sequence is cut into 2 R chunks. Rank r holds an early and a late one, chunks r and 2 R - 1 - r, one after
the other: q (B, H, n, d), k and v (B, Hkv, n, d) with n = N / R. Keys go round as in r2_ring. Of the four
pairs of chunks in a step, two are visible, whichever rank the keys are from:

    own keys             all queries, all keys, causal     (both chunks are in order, so one call does it)
    from an earlier rank all queries, its early chunk      (its late chunk is after both)
    from a later rank    the late queries, all its keys    (both its chunks are between own early and late)

So each step is half a step of r2_ring without a mask, for all ranks, and no call needs a mask of its own.

Bytes sent per rank: those of r2_ring. Compute per rank: N^2 / 2 R scores per head, to within N.

Source: the "zigzag" schedule of zhuzilin/ring-flash-attention (2024); Brandon et al. 2023, "Striped
Attention", balances the same work by single rows.
"""

from __future__ import annotations

from functools import partial

from ladder.call.distributed import ring
from ladder.call.distributed.layout import ALL, Part, Sizes, zigzag_chunks


def part_of(sizes: Sizes, rank: int, source: int) -> Part:
    """See the module's table. Without a causal mask, all queries with all keys."""
    if not sizes.is_causal or source == rank:
        return Part((source,), ALL, ALL, sizes.is_causal)
    if source < rank:
        early, _ = zigzag_chunks(sizes.rows, sizes.ranks, source)
        return Part((source,), ALL, slice(early), False)
    early, _ = zigzag_chunks(sizes.rows, sizes.ranks, rank)
    return Part((source,), slice(early, None), ALL, False)


parts = partial(ring.parts, part_of)
forward = partial(ring.forward, part_of)
backward = partial(ring.backward, part_of)
bytes_sent = ring.bytes_sent
