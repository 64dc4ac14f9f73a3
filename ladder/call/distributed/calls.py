"""Attention over a sequence whose rows are spread over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.call import Choices, autocast, must_be_deterministic, prepared, prepared_sequences
from ladder.call import attention as local_attention
from ladder.call.distributed import r1_all_gather, r2_ring, r3_zigzag, r4_ulysses, ring
from ladder.call.distributed.agreement import Description, description, exchanged, require_agreement
from ladder.call.distributed.copies import with_mailbox
from ladder.call.distributed.layout import Sizes
from ladder.call.distributed.team import Rungs, Team, as_tokens, on_device
from ladder.errors import InvalidProblem, LadderError, UnsupportedProblem
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
    tensor is sent. If one rank raises another error until then, the others get it as an
    :class:`InvalidProblem`. Raises :class:`CommunicationError` if a rank ends, or does not answer within the
    group's timeout, or if an earlier call has failed on some ranks only. With NCCL, torch's watchdog or a
    CUDA error ends the process instead of the timeout.
    """
    group = _member(group)
    tensors = (query, key, value)
    gradients = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors)
    if all(isinstance(x, Tensor) for x in tensors):
        query, key, value = autocast(*tensors)
    if group.size() == 1 and cu_seqlens is None:
        _require_schedule(schedule)
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
    deterministic = must_be_deterministic(deterministic) if gradients else deterministic
    rungs = Rungs(scale, stage, backward, arch or "", deterministic)
    with _heard(group):
        offsets = _offsets(cu_seqlens)
        own = _described(query, key, value, offsets, schedule, is_causal, enable_gqa, gradients, rungs)
        if not own.error:
            own = with_mailbox(group, own, query.device)
        started = _head_start(group, own, rungs, query, key, value)
    team = _agreed(group, own, offsets, rungs)
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


@contextmanager
def _heard(group: dist.ProcessGroup) -> Iterator[None]:
    """If this rank raises, the other ranks hear of it where they would wait for its description."""
    try:
        yield
    except Exception as error:
        exchanged(group, Description(error=f"{type(error).__name__}: {error}"))
        raise


def _offsets(cu_seqlens: Any) -> Any:
    """The offsets as a tuple; all but a one-dimensional tensor as it is, for an error that all ranks get."""
    is_list = isinstance(cu_seqlens, Tensor) and cu_seqlens.dim() == 1
    return tuple(cu_seqlens.tolist()) if is_list else cu_seqlens


def _described(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    offsets: tuple[int, ...] | None,
    schedule: str,
    is_causal: bool,
    enable_gqa: bool,
    gradients: bool,
    rungs: Rungs,
) -> Description:
    """This rank's call, or what is wrong with it, which the other ranks must hear of."""
    choices = Choices(
        is_causal,
        rungs.scale,
        enable_gqa,
        rungs.stage,
        rungs.arch,
        backward=rungs.backward,
        deterministic=rungs.deterministic,
    )
    try:
        _require_schedule(schedule)
        check_tensors(query, key, value, "4: (batch, heads, sequence, head_dim)", narrow_values=True)
        if value.shape[3] != key.shape[3]:
            raise UnsupportedProblem(
                f"value has d = {value.shape[3]} and key {key.shape[3]}; schedules send K and V of one size"
            )
        if offsets is not None:
            _require_sequences(query, offsets)
        # That a rank has no rows is an error of all ranks together. All else is checked as with one row.
        q, k, v = (
            x if x.shape[2] else x.new_empty((*x.shape[:2], 1, x.shape[3])) for x in (query, key, value)
        )
        if offsets is None:
            prepared(q, k, v, None, choices, gradients)
        else:
            _prepared_sequences(q, k, v, choices, gradients)
        if key.shape[2] != query.shape[2]:
            raise InvalidProblem(
                f"query has {query.shape[2]} rows and key {key.shape[2]}; a rank must hold the same rows of "
                "both"
            )
        return description(query, key, schedule, is_causal, rungs.scale, gradients, offsets)
    except LadderError as error:
        sentences = ". ".join(filter(None, (error.message, error.hint)))
        return Description(error=sentences.replace("\n", " "))


def _head_start(
    group: dist.ProcessGroup, own: Description, rungs: Rungs, query: Tensor, key: Tensor, value: Tensor
) -> ring.HeadStart | None:
    """The part with own keys, where it needs nothing of other ranks and K and V may go by copy engines."""
    if own.schedule not in _RINGS or own.sequences != "none" or not own.rows or not own.copies_on:
        return None
    with torch.no_grad():
        return ring.head_start(group, rungs, query, key, value, own.is_causal)


def _agreed(
    group: dist.ProcessGroup, own: Description, offsets: tuple[int, ...] | None, rungs: Rungs
) -> Team:
    """The ranks as a team, once they have exchanged descriptions that go together; all raise if not."""
    ranks = exchanged(group, own)
    require_agreement(ranks, dist.get_backend_config(group))
    lengths = tuple(one.rows for one in ranks)
    element_bytes = getattr(torch, own.dtype).itemsize
    sizes = Sizes(
        own.batch, own.heads, own.kv_heads, own.head_dim, lengths, element_bytes, own.is_causal, offsets
    )
    hosts = {one.copies_on for one in ranks}
    copies = len(hosts) == 1 and "" not in hosts
    return Team(group, group.rank(), sizes, own.schedule, copies, rungs)


def _require_schedule(schedule: Any) -> None:
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        raise InvalidProblem(f"there is no schedule {schedule!r}; schedules are {', '.join(SCHEDULES)}")


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


def _prepared_sequences(q: Tensor, k: Tensor, v: Tensor, choices: Choices, gradients: bool) -> None:
    """Raises as :func:`ladder.varlen_attention` for one sequence with this rank's rows."""
    tokens = (as_tokens(q), as_tokens(k), as_tokens(v))
    marks = (on_device(q.device, (0, q.shape[2])), on_device(k.device, (0, k.shape[2])))
    window = (-1, 0) if choices.is_causal else (-1, -1)
    choices = choices._replace(is_causal=False, window_size=window)
    prepared_sequences(tokens, marks, (q.shape[2], k.shape[2]), choices, gradients)


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
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        # torch refuses a second gradient only if an argument requires one. The outputs' gradients may be
        # constants, although the gradients depend on query, key and value.
        return _gradients(ctx, d_o, d_lse, torch.empty(0, requires_grad=True))


@once_differentiable
def _gradients(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None, _: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors
    d_o = saved[0].new_zeros(ctx.shape) if d_o is None else d_o
    none_for_others = (None,) * (len(ctx.needs_input_grad) - 3)
    return (*ctx.schedule.backward(ctx.team, saved, d_o, d_lse), *none_for_others)
