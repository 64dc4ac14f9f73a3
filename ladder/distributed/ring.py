"""Attention by a ring: blocks of keys and values go round, queries stay. r2_ring and r3_zigzag use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ladder.distributed.exchange import GRADIENTS, KEYS_AND_VALUES, pass_on
from ladder.distributed.layout import Part, Sizes
from ladder.distributed.merging import merge
from ladder.distributed.team import Saved, Team, stacked
from ladder.distributed.timeline import span

#: The part that a rank computes with the keys of a source; None if it sees none of them. The part with its
#: own keys has all its queries.
PartOf = Callable[[Sizes, int, int], Part | None]


def parts(part_of: PartOf, sizes: Sizes, rank: int) -> list[Part]:
    """The parts that a rank computes, in its order: own keys first, then those of the ranks before it."""
    steps = (part_of(sizes, rank, source) for source in sources(rank, sizes.ranks))
    return [part for part in steps if part is not None]


def sources(rank: int, ranks: int) -> list[int]:
    """Whose keys a rank holds at each step."""
    return [(rank - step) % ranks for step in range(ranks)]


def forward(part_of: PartOf, team: Team, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """o and lse of this rank's rows: one part per step, merged in the order of the steps. A single merge
    rounds o once; before several, it is fp32.
    """
    merges = len(parts(part_of, team.sizes, team.rank)) - 1
    o = lse = q
    for source, block in _round(team, stacked(k, v)):
        part = part_of(team.sizes, team.rank, source)
        if part is None:
            continue
        marks = team.marks(part, q.device)
        found = team.attend(q[:, :, part.queries], *_keys(block, part), part.is_causal, marks)
        with span("merge", q.device):
            if source == team.rank:
                o, lse = found if merges < 2 else (found[0].float(), found[1])
            else:
                merge(o[:, :, part.queries], lse[:, :, part.queries], *found)
    o = o.to(q.dtype)
    return o, lse, (q, k, v, o, lse)


def backward(
    part_of: PartOf, team: Team, saved: Saved, d_o: Tensor, d_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of this rank's rows.

    The gradients of a block of keys follow it round the ring, as sums in fp32 to which each rank adds its
    part. They start at the rank after the block's own. The block's own rank adds its part last.
    """
    q, k, v, *_ = saved
    dq = q
    own = sums = _sums(team, k, team.rank).zero_()
    transfer, received = None, own
    for source, block in _round(team, stacked(k, v)):
        part = part_of(team.sizes, team.rank, source)
        found = None if part is None else _gradients(team, part, block, saved, d_o, d_lse)
        if transfer is not None:
            transfer.wait()
            sums = received
        elif source != team.rank:
            sums = _sums(team, k, source).zero_()
        with span("merge", q.device):
            if part is not None and found is not None:
                if source == team.rank:
                    dq = found[0].float()
                else:
                    dq[:, :, part.queries] += found[0]
                sums[0, :, :, part.keys] += found[1]
                sums[1, :, :, part.keys] += found[2]
        if source != team.rank:
            received = _sums(team, k, (source - 1) % team.ranks)
            transfer = pass_on(team, sums, received, GRADIENTS)
    if transfer is not None:
        transfer.wait()
        own += received
    dk, dv = own.to(k.dtype).unbind()
    return dq.to(q.dtype), dk, dv


def bytes_sent(sizes: Sizes, rank: int) -> tuple[int, int]:
    """Bytes that a rank sends forward and backward.

    It sends the keys of all but the next rank, in the backward pass once more, and the gradients of all but
    its own.
    """
    keys = sizes.kv_elements_but_of((rank + 1) % sizes.ranks) * sizes.element_bytes
    return keys, keys + 4 * sizes.kv_elements_but_of(rank)


def _round(team: Team, block: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yields each source with its block of K and V (2, B, Hkv, m, d). While the caller computes with one, it
    goes on to the next rank, and the next one arrives in the other of two buffers.
    """
    largest = max(map(team.sizes.kv_elements, range(team.ranks)))
    buffers = block.new_empty((2, largest))
    order = sources(team.rank, team.ranks)
    for step, source in enumerate(order[:-1]):
        arriving = buffers[step % 2][: team.sizes.kv_elements(order[step + 1])]
        arriving = arriving.view(_shape(team, block[0], order[step + 1]))
        transfer = pass_on(team, block, arriving, KEYS_AND_VALUES)
        yield source, block
        transfer.wait()
        block = arriving
    yield order[-1], block


def _shape(team: Team, k: Tensor, source: int) -> tuple[int, ...]:
    """The shape (2, B, Hkv, m, d) of a source's K and V, or of their gradients."""
    return (2, *k.shape[:2], team.sizes.lengths[source], k.shape[3])


def _sums(team: Team, k: Tensor, source: int) -> Tensor:
    """Room for the sums of the gradients of a source's K and V."""
    return torch.empty(_shape(team, k, source), dtype=torch.float32, device=k.device)


def _keys(block: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    k, v = block[:, :, :, part.keys].unbind()
    return k, v


def _gradients(
    team: Team, part: Part, block: Tensor, saved: Saved, d_o: Tensor, d_lse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    q, _, _, o, lse = (x[:, :, part.queries] for x in saved)
    of_lse = None if d_lse is None else d_lse[:, :, part.queries]
    k, v = _keys(block, part)
    marks = team.marks(part, q.device)
    return team.gradients(d_o[:, :, part.queries], of_lse, (q, k, v, o, lse), part.is_causal, marks)
