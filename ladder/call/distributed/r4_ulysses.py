"""r4_ulysses: exchange heads for rows, compute whole heads, exchange back.

Rank r holds rows r of R consecutive shards of the sequence: q (B, H, n, d), k and v (B, Hkv, n, d). An
all-to-all leaves it with all N rows of H / R heads, (B, H / R, N, d), which it computes as one GPU would,
with any mask and nothing to merge; a second one brings o and lse back. H and Hkv must be multiples of R.

Bytes sent per rank, with R shards of n rows and e bytes per element:

    forward   (R - 1) / R B n ((2 H + 2 Hkv) d e + 4 H)        q, k, v; then o and lse
    backward  the same                                         d_o and d_lse; then dq, dk, dv

The ring sends (R - 1) 2 B Hkv n d e forward. So this one sends less if R > H / Hkv + 1, about R / 2 times
less without GQA; but its exchanges are not overlapped with the computation, and the ring's are.

Source: Jacobs et al. 2023, "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long
Sequence Transformer Models".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ladder.call.distributed.exchange import all_to_all
from ladder.call.distributed.layout import Sizes
from ladder.call.distributed.team import Saved, Team


def forward(team: Team, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Saved]:
    """o and lse of this rank's rows, and what is saved: whole heads."""
    q, k, v = _to_heads(team, q, k, v)
    o, lse = team.rungs.attend(q, k, v, team.sizes.is_causal, team.whole_marks(q.device))
    [own_o], [own_lse] = _to_rows(team, o), _to_rows(team, lse)
    return own_o, own_lse, (q, k, v, o, lse)


def backward(team: Team, saved: Saved, d_o: Tensor, d_lse: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """dq, dk and dv of this rank's rows.

    All ranks must send the same, so a rank whose lse has no gradient sends zeros.
    """
    if d_lse is None:
        d_lse = torch.zeros(d_o.shape[:3], dtype=torch.float32, device=d_o.device)
    [d_o], [d_lse] = _to_heads(team, d_o), _to_heads(team, d_lse)
    marks = team.whole_marks(d_o.device)
    dq, dk, dv = _to_rows(team, *team.rungs.gradients(d_o, d_lse, saved, team.sizes.is_causal, marks))
    return dq, dk, dv


def bytes_sent(sizes: Sizes, rank: int) -> tuple[int, int]:
    """Bytes that a rank sends forward and backward."""
    own, others = sizes.lengths[rank], sizes.rows - sizes.lengths[rank]
    of_heads = sizes.batch * sizes.heads // sizes.ranks
    of_kv_heads = sizes.batch * sizes.kv_heads // sizes.ranks
    row_bytes = sizes.head_dim * sizes.element_bytes
    q_k_v, o_lse = (of_heads + 2 * of_kv_heads) * row_bytes, of_heads * (row_bytes + 4)
    to_heads, to_rows = own * (sizes.ranks - 1), others
    return q_k_v * to_heads + o_lse * to_rows, o_lse * to_heads + q_k_v * to_rows


def _to_heads(team: Team, *tensors: Tensor) -> list[Tensor]:
    """(B, H, n, ...) with own rows -> (B, H / R, N, ...) with own heads, of each tensor."""
    per_rank = [x.chunk(team.ranks, 1) for x in tensors]
    pieces = [torch.cat([x[rank].flatten() for x in per_rank]) for rank in range(team.ranks)]
    shapes = [[(*x[0].shape[:2], length, *x[0].shape[3:]) for x in per_rank] for length in team.sizes.lengths]
    return [torch.cat(found, 2) for found in _exchanged(team, pieces, shapes)]


def _to_rows(team: Team, *tensors: Tensor) -> list[Tensor]:
    """The inverse: (B, H / R, N, ...) -> (B, H, n, ...)."""
    per_rank = [x.split([*team.sizes.lengths], 2) for x in tensors]
    pieces = [torch.cat([x[rank].flatten() for x in per_rank]) for rank in range(team.ranks)]
    shapes = [[x[team.rank].shape for x in per_rank]] * team.ranks
    return [torch.cat(found, 1) for found in _exchanged(team, pieces, shapes)]


def _exchanged(
    team: Team, pieces: list[Tensor], shapes: list[list[tuple[int, ...]]]
) -> list[tuple[Tensor, ...]]:
    """Sends a piece to each rank; of each tensor, returns what the ranks have sent, with ``shapes`` by rank
    and tensor.
    """
    counts = [[math.prod(shape) for shape in of_rank] for of_rank in shapes]
    received = all_to_all(team, pieces, [sum(of_rank) for of_rank in counts])
    tensors = [
        [flat.view(shape) for flat, shape in zip(piece.split(sizes), of_rank, strict=True)]
        for piece, sizes, of_rank in zip(received, counts, shapes, strict=True)
    ]
    return [*zip(*tensors, strict=True)]
