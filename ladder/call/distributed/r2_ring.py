"""r2_ring: pass K and V on while computing.

Rank r holds rows r of R consecutive shards of the sequence: q (B, H, n, d), k and v (B, Hkv, n, d). In step s
it computes with the keys of rank r - s, modulo R, while it sends them to rank r + 1 and receives the next
ones from rank r - 1: two buffers, two streams. After R - 1 steps all ranks have seen all keys, and none has
ever held more than two blocks of others. With a causal mask rank 0 sees one block and rank R - 1 sees R: the
last rank decides about the time, which is nearly twice the average.

Bytes sent per rank, with R shards of n rows and e bytes per element:

    forward   (R - 1) 2 B Hkv n d e
    backward  2 B Hkv n d (R e + (R - 2) 4)   K and V again, then dK and dV: one part as it is, sums in fp32

Source: Liu, Zaharia and Abbeel 2023, "Ring Attention with Blockwise Transformers for Near-Infinite Context".
"""

from __future__ import annotations

from functools import partial

from ladder.call.distributed import ring
from ladder.call.distributed.layout import ALL, Part, Sizes


def part_of(sizes: Sizes, rank: int, source: int) -> Part | None:
    """With a causal mask: a triangle of own keys, all of those of ranks before, none of those after."""
    if sizes.is_causal and source > rank:
        return None
    return Part((source,), ALL, ALL, sizes.is_causal and source == rank)


parts = partial(ring.parts, part_of)
forward = partial(ring.forward, part_of)
backward = partial(ring.backward, part_of)
bytes_sent = ring.bytes_sent
