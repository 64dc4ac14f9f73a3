"""Attention by a ring: blocks of keys and values go round, queries stay. r2_ring and r3_zigzag use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from ladder.call.distributed.copies import known_mailbox, mailbox_of
from ladder.call.distributed.exchange import GRADIENTS, KEYS_AND_VALUES, pass_on
from ladder.call.distributed.layout import ALL, Part, Sizes
from ladder.call.distributed.merging import merge
from ladder.call.distributed.team import Rungs, Saved, Team
from ladder.call.distributed.timeline import span

#: The part that a rank computes with the keys of a source; None if it sees none of them. The part with its
#: own keys has all its queries.
PartOf = Callable[[Sizes, int, int], Part | None]
#: dq, dk and dv of a part.
Gradients = tuple[Tensor, Tensor, Tensor]


def parts(part_of: PartOf, sizes: Sizes, rank: int) -> list[Part]:
    """The parts that a rank computes, in its order: own keys first, then those of the ranks before it."""
    steps = (part_of(sizes, rank, source) for source in sources(rank, sizes.ranks))
    return [part for part in steps if part is not None]


def sources(rank: int, ranks: int) -> list[int]:
    """Whose keys a rank holds at each step."""
    return [(rank - step) % ranks for step in range(ranks)]


@dataclass(frozen=True)
class HeadStart:
    """The part with own keys, launched while the ranks still agree about their call: K and V, its o and lse,
    and the event after which K and V can be sent.
    """

    block: tuple[Tensor, Tensor]
    found: tuple[Tensor, Tensor]
    ready: torch.cuda.Event


def head_start(
    group: dist.ProcessGroup, rungs: Rungs, q: Tensor, k: Tensor, v: Tensor, is_causal: bool
) -> HeadStart | None:
    """Launches the part with own keys where copy engines have carried blocks before, whose transfer can begin
    later than the part. NCCL's kernels would wait until it ends, and on CPUs nothing is launched ahead: None.
    """
    mailbox = known_mailbox(group, q.device)
    if mailbox is None:
        return None
    block = k.contiguous(), v.contiguous()
    ready = mailbox.make_room()
    return HeadStart(block, rungs.attend(q, *block, is_causal, None), ready)


def forward(
    part_of: PartOf, team: Team, q: Tensor, k: Tensor, v: Tensor, started: HeadStart | None = None
) -> tuple[Tensor, Tensor, Saved]:
    """o and lse of this rank's rows: one part per step, merged in the order of the steps. A single merge
    rounds o once; before several, it is fp32.
    """
    merges = len(parts(part_of, team.sizes, team.rank)) - 1
    o = lse = q
    for source, block in _round(team, k, v, started):
        part = part_of(team.sizes, team.rank, source)
        if part is None:
            continue
        if started is not None and source == team.rank:
            found = started.found
        else:
            marks = team.marks(part, q.device)
            found = team.rungs.attend(q[:, :, part.queries], *_keys(block, part), part.is_causal, marks)
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

    The gradients of a block of keys follow it round the ring, as sums to which each rank adds its part. They
    start at the rank after the block's own, which sends its part as it is, in the tensors' dtype. Sums of
    more are sent in fp32. The block's own rank adds its part last. Two terms are added in fp32 and rounded
    once also where they are of 16 bits, so dq is only fp32 if it has more.
    """
    q, k, v, *_ = saved
    merges = len(parts(part_of, team.sizes, team.rank)) - 1
    dq = q
    own: Sequence[Tensor] = (k, v)
    transfer, received = None, own
    for step, (source, block) in enumerate(_round(team, k, v)):
        part = part_of(team.sizes, team.rank, source)
        found = None if part is None else _gradients(team, part, block, saved, d_o, d_lse)
        if transfer is not None:
            transfer.wait()
        if step:
            with span("merge", q.device):
                sums = _started(block, part, found) if step == 1 else _continued(received, part, found)
            received = _room(team, k, source, step)
            transfer = pass_on(team, sums, received, GRADIENTS)
        if part is not None and found is not None:
            with span("merge", q.device):
                if not step:
                    dq, *own = found if merges < 2 else (found[0].float(), *found[1:])
                else:
                    dq[:, :, part.queries] += found[0]
    if transfer is not None:
        transfer.wait()
        with span("merge", q.device):
            own = [(x + y).to(k.dtype) for x, y in zip(own, received, strict=True)]
    dk, dv = own
    return dq.to(q.dtype), dk, dv


def bytes_sent(sizes: Sizes, rank: int) -> tuple[int, int]:
    """Bytes that a rank sends forward and backward.

    It sends the keys of all but the next rank, in the backward pass once more, and the gradients of all but
    its own: in the tensors' dtype for the rank before it, whose gradients are no sums yet, else in fp32.
    """
    keys = sizes.kv_elements_but_of((rank + 1) % sizes.ranks) * sizes.element_bytes
    first = sizes.kv_elements((rank - 1) % sizes.ranks) if sizes.ranks > 1 else 0
    sums = sizes.kv_elements_but_of(rank) - first
    return keys, keys + first * sizes.element_bytes + 4 * sums


def _round(
    team: Team, k: Tensor, v: Tensor, started: HeadStart | None = None
) -> Iterator[tuple[int, Sequence[Tensor]]]:
    """Yields each source with its block of K and V (B, Hkv, m, d). While the caller computes with one, it
    goes on to the next rank, and the next one arrives in the other of two buffers.
    """
    largest = max(map(team.sizes.kv_elements, range(team.ranks)))
    order = sources(team.rank, team.ranks)
    block: Sequence[Tensor] = (k.contiguous(), v.contiguous()) if started is None else started.block
    ready = None if started is None else started.ready
    mailbox = mailbox_of(team, k.device, largest * k.element_size())
    if mailbox is not None:
        for source, following in pairwise(order):
            transfer, ready = mailbox.send(block, ready), None
            yield source, block
            transfer.wait()
            block = mailbox.received(_shape(team, k, following), k.dtype)
        yield order[-1], block
        mailbox.done()
        return
    buffers = k.new_empty((2, largest))
    for step, (source, following) in enumerate(pairwise(order)):
        arriving = buffers[step % 2][: team.sizes.kv_elements(following)]
        blocks = arriving.view(_shape(team, k, following)).unbind()
        transfer = pass_on(team, block, blocks, KEYS_AND_VALUES)
        yield source, block
        transfer.wait()
        block = blocks
    yield order[-1], block


def _shape(team: Team, k: Tensor, source: int) -> tuple[int, ...]:
    """The shape (2, B, Hkv, m, d) of a source's K and V, or of their gradients."""
    return (2, *k.shape[:2], team.sizes.lengths[source], k.shape[3])


def _room(team: Team, k: Tensor, source: int, step: int) -> Sequence[Tensor]:
    """Room for the gradients of K and V that arrive while this rank sends those of ``source``, in a step."""
    dtype = k.dtype if step == 1 else torch.float32
    shape = _shape(team, k, (source - 1) % team.ranks)
    return torch.empty(shape, dtype=dtype, device=k.device).unbind()


def _started(block: Sequence[Tensor], part: Part | None, found: Gradients | None) -> Sequence[Tensor]:
    """The gradients of a block of keys by one part, with zeros for keys that it does not see."""
    if part is None or found is None:
        return [torch.zeros_like(x) for x in block]
    if part.keys == ALL:
        return [x.contiguous() for x in found[1:]]
    sums = [torch.zeros_like(x) for x in block]
    for x, of_keys in zip(sums, found[1:], strict=True):
        x[:, :, part.keys] = of_keys
    return sums


def _continued(received: Sequence[Tensor], part: Part | None, found: Gradients | None) -> Sequence[Tensor]:
    """The sums of gradients that have been received, in fp32, with those of one more part."""
    sums = [x.float() for x in received]
    if part is not None and found is not None:
        for x, of_keys in zip(sums, found[1:], strict=True):
            x[:, :, part.keys] += of_keys
    return sums


def _keys(block: Sequence[Tensor], part: Part) -> tuple[Tensor, Tensor]:
    k, v = (x[:, :, part.keys] for x in block)
    return k, v


def _gradients(
    team: Team, part: Part, block: Sequence[Tensor], saved: Saved, d_o: Tensor, d_lse: Tensor | None
) -> Gradients:
    q, _, _, o, lse = (x[:, :, part.queries] for x in saved)
    of_lse = None if d_lse is None else d_lse[:, :, part.queries]
    k, v = _keys(block, part)
    marks = team.marks(part, q.device)
    return team.rungs.gradients(d_o[:, :, part.queries], of_lse, (q, k, v, o, lse), part.is_causal, marks)
