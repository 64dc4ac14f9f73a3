"""Differentiable HSTU attention over jagged batches, computed by a rung."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.errors import UnsupportedProblem
from ladder.functional.runs import AUTO, Choice, prepare, require_backward
from ladder.operations import (
    HstuBackwardProblem,
    HstuPages,
    HstuProblem,
    hstu_problem_of_tensors,
)


def hstu_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None = None,
    *,
    rab: Tensor | None = None,
    num_contexts: Tensor | None = None,
    num_targets: Tensor | None = None,
    target_group_size: int = 1,
    window: tuple[int, int] = (-1, 0),
    intervals: Tensor | None = None,
    pages: HstuPages | None = None,
    alpha: float | None = None,
    scaling_seqlen: int | None = None,
    deterministic: bool = False,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    backward: str = AUTO,
) -> Tensor:
    """HSTU attention: query (total_q, H, d), key and value (total_k, H, d) -> o (total_q, H, d).

    Sequence b has the tokens ``cu_seqlens_q[b]`` to ``cu_seqlens_q[b + 1] - 1`` of query and, likewise, those
    given by ``cu_seqlens_k`` of key and value. By default these are the same; there may be more keys than
    queries, which are then the sequence's last tokens. The heads of a token must be contiguous; tokens may be
    strided, like slices of a wider row.

    ``rab`` (B, 1 or H, N, N), with N the largest number of keys in a sequence, is added to the logits, which
    are multiplied by ``alpha``, 1 / sqrt(d) by default; o is divided by ``scaling_seqlen``, by default the
    largest number of queries in a sequence. The mask is that of :func:`ladder.hstu_mask`: ``num_contexts``
    and ``num_targets`` (B), ``target_group_size``, ``window``, ``intervals`` (an odd number of bounds,
    total_q). With ``pages``, the keys and values of each history are in a cache; key and value then have
    query's tokens, of which only the targets' are read. Integer tensors are int32; checking them synchronises
    with the GPU.

    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. ``stage`` names
    the rung, ``options`` are its options, and ``backward`` names the rung that computes the gradients;
    "auto" is the highest that takes the problem there. The result is differentiable once, with respect to
    query, key, value and rab. With ``deterministic``, a deterministic rung computes these gradients: they are
    bitwise identical in every run.

    Raises :class:`InvalidProblem` for mismatched tensors, and :class:`UnsupportedProblem` if the stage does
    not take the problem, or if a tensor requires a gradient that no stage computes.
    """
    problem, inputs = hstu_problem_of_tensors(
        query,
        key,
        value,
        cu_seqlens_q,
        cu_seqlens_k,
        rab=rab,
        num_contexts=num_contexts,
        num_targets=num_targets,
        intervals=intervals,
        pages=pages,
        target_group_size=target_group_size,
        window=tuple(window),
        alpha=alpha,
        scaling_seqlen=scaling_seqlen,
    )
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (query, key, value, rab)):
        _require_gradients(problem)
    call = _Call(
        problem,
        query.device,
        tuple(inputs),
        stage,
        arch or "",
        options or {},
        backward,
        deterministic,
    )
    o: Tensor = _HstuAttention.apply(call, *inputs.values())
    return o


def _require_gradients(problem: HstuProblem) -> None:
    """Raises :class:`UnsupportedProblem` if no stage computes the problem's gradients."""
    if problem.page_size:
        raise UnsupportedProblem(
            "a tensor requires a gradient, and keys in pages have none",
            "Call it under torch.no_grad(), or pass detached tensors.",
        )
    require_backward(_differentiated(problem))


@dataclass(frozen=True)
class _Call:
    """The arguments of a call besides its tensors, whose names are ``names``, in order."""

    problem: HstuProblem
    device: torch.device
    names: tuple[str, ...]
    stage: str
    arch: str
    options: Mapping[str, str]
    backward: str
    deterministic: bool


class _HstuAttention(torch.autograd.Function):
    """All backward rungs need only the forward pass's inputs, so the two rungs are chosen independently."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor | None) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        inputs = dict(zip(call.names, tensors, strict=True))
        choice = Choice(call.stage, call.arch, tuple(call.options.items()))
        [o] = prepare(call.problem, inputs, call.device, choice)(inputs)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        inputs = dict(zip(call.names, ctx.saved_tensors, strict=True))
        inputs.update(d_o=d_o.contiguous(), d_rab=None)
        bias_gradient = dict(zip((None, *call.names), ctx.needs_input_grad, strict=True))["rab"]
        wanted = _differentiated(call.problem, bias_gradient=bias_gradient)
        choice = Choice(call.backward, call.arch, deterministic=call.deterministic)
        d_q, d_k, d_v, *d_rab = prepare(wanted, inputs, d_o.device, choice)(inputs)
        gradients = {"q": d_q, "k": d_k, "v": d_v, "rab": d_rab[0].to(d_o.dtype) if d_rab else None}
        return None, *(gradients.get(name) for name in call.names)


def _differentiated(problem: HstuProblem, *, bias_gradient: bool = True) -> HstuBackwardProblem:
    """The backward problem of a forward problem."""
    return HstuBackwardProblem(**asdict(problem), bias_gradient=bias_gradient)
