"""Attention over a sequence whose rows are spread over the ranks of a group."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.distributed import r1_all_gather, r2_ring, r3_zigzag, r4_ulysses, ring
from ladder.distributed.agreement import Description, description, exchanged, require_agreement
from ladder.distributed.layout import Sizes
from ladder.distributed.team import Rungs, Team, as_tokens, on_device
from ladder.errors import InvalidProblem, LadderError
from ladder.functional import attention as local_attention
from ladder.functional import autocast, prepared, prepared_sequences
from ladder.operations import check_tensors

#: The modules of the schedules: ``forward``, ``backward`` and ``bytes_sent`` of each.
SCHEDULES: dict[str, ModuleType] = {
    "all_gather": r1_all_gather,
    "ring": r2_ring,
    "zigzag": r3_zigzag,
    "ulysses": r4_ulysses,
}
AUTO = "auto"
#: The schedules whose own part needs nothing of other ranks.
_RINGS = ("ring", "zigzag")


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    cu_seqlens: Tensor | None = None,
    group: dist.ProcessGroup | None = None,
    schedule: str = "ring",
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    stage: str = AUTO,
    backward: str = AUTO,
    arch: str | None = None,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Self-attention of a sequence that is spread over the ranks of ``group`` (by default, all): query (B, H,
    n, d), key and value (B, Hkv, n, d) -> (o, lse), the rows of this rank.

    Each rank calls it with its rows, as :func:`ladder.distributed.shard` cuts them for the ``schedule``:
    "all_gather", "ring", "zigzag" (for causal masks) or "ulysses"; their modules, r1 to r4, say what each
    sends. Ranks may hold different numbers of rows. With "zigzag", o and the gradients come in the order of
    the two chunks. The other arguments are those of :func:`ladder.attention`. Parts are merged in a fixed
    order, so results are as deterministic as the rungs.

    With ``cu_seqlens`` (S + 1), int32, the rows of all ranks together are the tokens of S sequences that do
    not see each other, and B is 1. Sequence b has the rows ``cu_seqlens[b]`` to ``cu_seqlens[b + 1] - 1`` of
    the whole, wherever the shards cut it. All ranks pass the same offsets, which are read and so wait for a
    GPU that they are on. The rungs are then those of :func:`ladder.varlen_attention`.

    Both outputs are differentiable once. Gradients take a second round of communication, so all ranks must
    call ``backward`` on results that depend on o or lse.

    Ranks that differ in anything but the number of rows all get the same :class:`InvalidProblem`, before a
    tensor is sent. Raises :class:`CommunicationError` if a rank ends, or does not answer within the group's
    timeout. With NCCL, torch's watchdog or a CUDA error ends the process instead.
    """
    group = _member(group)
    tensors = (query, key, value)
    offsets: Any = cu_seqlens
    if isinstance(cu_seqlens, Tensor) and cu_seqlens.dim() == 1:
        offsets = tuple(cu_seqlens.tolist())
    if all(isinstance(x, Tensor) for x in tensors):
        query, key, value = autocast(*tensors)
    gradients = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors)
    if group.size() == 1 and cu_seqlens is None:
        return local_attention(
            query,
            key,
            value,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
            stage=stage,
            arch=arch,
            backward=backward,
            deterministic=deterministic,
        )
    choices = (is_causal, scale, enable_gqa, stage, arch or "", gradients)
    own = _described(query, key, value, offsets, schedule, *choices, (backward, deterministic))
    rungs = Rungs(scale, stage, backward, arch or "", deterministic)
    started = None
    if not own.error and offsets is None and schedule in _RINGS:
        with torch.no_grad():
            started = ring.head_start(group, rungs, query, key, value, is_causal)
    ranks = exchanged(group, own)
    require_agreement(ranks, dist.get_backend_config(group))
    sizes = Sizes(
        own.batch,
        own.heads,
        own.kv_heads,
        own.head_dim,
        tuple(one.rows for one in ranks),
        query.element_size(),
        is_causal,
        offsets,
    )
    hosts = {one.copies_on for one in ranks}
    copies = len(hosts) == 1 and "" not in hosts
    team = Team(group, group.rank(), sizes, schedule, copies, rungs)
    ahead = () if started is None else (started,)
    if gradients:
        outputs: tuple[Tensor, Tensor] = _Attention.apply(
            query, key, value, team, SCHEDULES[schedule], *ahead
        )
        return outputs
    o, lse, _ = SCHEDULES[schedule].forward(team, query, key, value, *ahead)
    return o, lse


def _member(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group that is meant. Raises :class:`LadderError` if this process is not in it."""
    if not dist.is_initialized():
        raise LadderError(
            "this process is in no process group",
            "Launch with torchrun, and call torch.distributed.init_process_group first.",
        )
    found = dist.group.WORLD if group is None else group
    if found is None or dist.get_rank(found) < 0:
        raise LadderError("this process is not in the group", "Only the ranks of a group may call it.")
    return found


def _described(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: tuple[int, ...] | None,
    schedule: str,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    stage: str,
    arch: str,
    gradients: bool,
    by: tuple[str, bool],
) -> Description:
    """This rank's call, or what is wrong with it, which the other ranks must hear of."""
    gradients_by = by if gradients else None
    try:
        if schedule not in SCHEDULES:
            raise InvalidProblem(f"there is no schedule {schedule!r}; schedules are {', '.join(SCHEDULES)}")
        check_tensors(query, key, value, "4: (batch, heads, sequence, head_dim)")
        if offsets is not None:
            _require_sequences(query, offsets)
        # That a rank has no rows is an error of all ranks together. All else is checked as with one row.
        q, k, v = (
            x if x.shape[2] else x.new_empty((*x.shape[:2], 1, x.shape[3])) for x in (query, key, value)
        )
        if offsets is None:
            prepared(q, k, v, is_causal, scale, enable_gqa, stage, arch, "", gradients_by)
        else:
            _prepared_sequences(q, k, v, is_causal, scale, enable_gqa, stage, arch, gradients_by)
        if key.shape[2] != query.shape[2]:
            raise InvalidProblem(
                f"query has {query.shape[2]} rows and key {key.shape[2]}; a rank must hold the same rows of "
                "both"
            )
        return description(query, key, schedule, is_causal, scale, gradients, offsets)
    except LadderError as error:
        return Description(error=str(error).replace("\n", " "))


def _require_sequences(query: Tensor, offsets: Any) -> None:
    """Raises :class:`InvalidProblem` unless these can be the offsets of sequences in a batch of one."""
    if not isinstance(offsets, tuple) or not all(isinstance(mark, int) for mark in offsets):
        raise InvalidProblem("cu_seqlens must be a one-dimensional torch.Tensor of int32")
    if len(query) != 1:
        raise InvalidProblem(
            f"query has batch {len(query)}; with cu_seqlens it is 1, and the sequences lie in its rows"
        )
    if len(offsets) < 2 or offsets[0] != 0 or any(end < begin for begin, end in pairwise(offsets)):
        raise InvalidProblem(
            "cu_seqlens must have an entry per sequence and one more, begin with 0 and never decrease"
        )


def _prepared_sequences(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    stage: str,
    arch: str,
    gradients_by: tuple[str, bool] | None,
) -> None:
    """Raises as :func:`ladder.varlen_attention` for one sequence with this rank's rows."""
    tokens = [as_tokens(x) for x in (query, key, value)]
    marks = [on_device(x.device, (0, x.shape[2])) for x in (query, key)]
    window = (-1, 0) if is_causal else (-1, -1)
    given = (query.shape[2], key.shape[2], scale, window, enable_gqa, stage, arch, "")
    prepared_sequences((tokens[0], tokens[1], tokens[2]), (marks[0], marks[1]), gradients_by, *given)


class _Attention(torch.autograd.Function):
    """A schedule's forward pass with its backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        team: Team,
        schedule: ModuleType,
        *ahead: ring.HeadStart,
    ) -> tuple[Tensor, Tensor]:
        o, lse, saved = schedule.forward(team, query, key, value, *ahead)
        ctx.save_for_backward(*saved)
        ctx.team, ctx.schedule, ctx.shape = team, schedule, query.shape
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        d_o = saved[0].new_zeros(ctx.shape) if d_o is None else d_o
        none_for_others = (None,) * (len(ctx.needs_input_grad) - 3)
        return (*ctx.schedule.backward(ctx.team, saved, d_o, d_lse), *none_for_others)
