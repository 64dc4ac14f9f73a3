"""r1_all_gather: gather all K and V, then compute. The baseline.

Rank r holds rows r of R consecutive shards of the sequence: q (B, H, n, d), k and v (B, Hkv, n, d). With a
causal mask it computes with its own keys while the others arrive, then with all keys before them in one call
without a mask, and merges the two. Memory: all keys, R times its share. In the backward pass they are
gathered again. Each rank sends the others their parts of dK and dV as they are, which are added in fp32, in
the order of the ranks.

Bytes sent per rank, with R shards of at most n rows and e bytes per element (shorter shards are padded):

    forward   (R - 1) 2 B Hkv n d e
    backward  (R - 1) 2 B Hkv n d e + 2 B Hkv d e (rows of other ranks; with a causal mask, of those before)

Source: Llama 3 (Grattafiori et al. 2024, section 3.3.2) trains long contexts with an all-gather of K and V.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.call.distributed.exchange import all_gather, all_to_all
from ladder.call.distributed.layout import ALL, Part, Sizes
from ladder.call.distributed.merging import merge
from ladder.call.distributed.team import Saved, Team, stacked
from ladder.call.distributed.timeline import span


def parts(sizes: Sizes, rank: int) -> list[Part]:
    """With a causal mask: own keys, then all keys before them. Without, all keys at once."""
    if not sizes.is_causal:
        return [Part(tuple(range(sizes.ranks)), ALL, ALL, False)]
    own = Part((rank,), ALL, ALL, True)
    return [own, Part(tuple(range(rank)), ALL, ALL, False)] if rank else [own]


def forward(team: Team, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """o and lse of this rank's rows."""
    keys = _Gathered(team, stacked(k, v))
    first, *others = parts(team.sizes, team.rank)
    o, lse = team.rungs.attend(q, *keys.of(first), first.is_causal, team.marks(first, q.device))
    for part in others:
        found = team.rungs.attend(q, *keys.of(part), part.is_causal, team.marks(part, q.device))
        with span("merge", q.device):
            merge(o, lse, *found)
    keys.wait()
    return o, lse, (q, k, v, o, lse)


def backward(team: Team, saved: Saved, d_o: Tensor, d_lse: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of this rank's rows. A sum of two parts of dq, in their dtype, is rounded once."""
    q, k, v, o, lse = saved
    keys = _Gathered(team, stacked(k, v))
    dq = None
    found: dict[int, Tensor] = {}
    for part in parts(team.sizes, team.rank):
        marks = team.marks(part, q.device)
        of_queries, *of_keys = team.rungs.gradients(
            d_o, d_lse, (q, *keys.of(part), o, lse), part.is_causal, marks
        )
        dq = of_queries if dq is None else dq.add_(of_queries)
        lengths = [team.sizes.lengths[source] for source in part.sources]
        found.update(zip(part.sources, stacked(*of_keys).split(lengths, 3), strict=True))
    keys.wait()
    dk, dv = _sent_home(team, found).to(k.dtype).unbind()
    assert dq is not None
    return dq, dk, dv


def bytes_sent(sizes: Sizes, rank: int) -> tuple[int, int]:
    """Bytes that a rank sends forward and backward."""
    largest = max(map(sizes.kv_elements, range(sizes.ranks)))
    gathered = (sizes.ranks - 1) * largest * sizes.element_bytes
    others = [source for part in parts(sizes, rank) for source in part.sources if source != rank]
    return gathered, gathered + sizes.element_bytes * sum(map(sizes.kv_elements, others))


class _Gathered:
    """The keys and values of all ranks, which arrive while own ones are used."""

    def __init__(self, team: Team, block: Tensor) -> None:
        self._team, self._own = team, block
        padding = max(team.sizes.lengths) - block.shape[3]
        self._transfer, self._blocks = all_gather(team, F.pad(block, (0, 0, 0, padding)))

    def wait(self) -> None:
        self._transfer.wait()

    def of(self, part: Part) -> tuple[Tensor, Tensor]:
        """K and V of a part."""
        if part.sources == (self._team.rank,):
            return self._own[0], self._own[1]
        self.wait()
        lengths = self._team.sizes.lengths
        blocks = [self._blocks[source, :, :, :, : lengths[source]] for source in part.sources]
        k, v = torch.cat(blocks, 3).unbind()
        return k, v


def _sent_home(team: Team, found: dict[int, Tensor]) -> Tensor:
    """Sends the gradients (2, B, Hkv, m, d) of other ranks' keys to them; returns the sum of those of own
    keys, in fp32, added in the order of the ranks, own ones first.
    """
    own = found.pop(team.rank)
    pieces = [found[rank].flatten() if rank in found else own.new_empty(0) for rank in range(team.ranks)]
    total = own.float()
    counts = [
        total.numel()
        if rank != team.rank and any(team.rank in part.sources for part in parts(team.sizes, rank))
        else 0
        for rank in range(team.ranks)
    ]
    for piece in all_to_all(team, pieces, counts):
        if len(piece):
            total = total + piece.view_as(total)
    return total
