"""HSTU attention by a rung of the ladder, over jagged batches, differentiable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.errors import UnsupportedProblem
from ladder.functional.runs import require_backward, run_stage
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
    stage: str | None = None,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    backward: str | None = None,
) -> Tensor:
    """HSTU attention: query (total_q, H, d), key and value (total_k, H, d) -> o (total_q, H, d).

    Sequence b has the tokens ``cu_seqlens_q[b]`` to ``cu_seqlens_q[b + 1] - 1`` of query, and those of
    ``cu_seqlens_k`` of key and value, at least as many; by default they are the same. Its queries are the
    last of its tokens. Of each token the heads lie side by side; tokens may lie apart, as slices of a wider
    row do.

    ``rab`` (B, 1 or H, N, N), N the most keys of a sequence, is added to the logits, which are multiplied by
    ``alpha``, 1 / sqrt(d) by default; o is divided by ``scaling_seqlen``, by default the most queries of a
    sequence. The mask is that of :func:`ladder.hstu_mask`: ``num_contexts`` and ``num_targets`` (B),
    ``target_group_size``, ``window``, ``intervals`` (an odd number of bounds, total_q). With ``pages`` the
    keys and values of each history lie in a cache, key and value have query's tokens, and only those of the
    targets are read. Tensors of numbers are int32; a GPU is waited for, to check them.

    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. ``stage`` names
    the rung, ``options`` are its options, and ``backward`` names the rung that makes the gradients: by
    default the highest that takes the problem. query, key, value and rab are differentiable, once.

    Raises :class:`InvalidProblem` for tensors that do not match and :class:`UnsupportedProblem` for a problem
    that the stage does not take, or that no stage has the gradients of where a tensor requires one.
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
        if problem.page_size:
            raise UnsupportedProblem(
                "a tensor requires a gradient, and keys in pages have none",
                "Call it under torch.no_grad(), or pass detached tensors.",
            )
        require_backward(_differentiated(problem))
    call = _Call(
        problem,
        query.device,
        tuple(inputs),
        stage or "",
        arch or "",
        options or {},
        backward or "",
    )
    o: Tensor = _HstuAttention.apply(call, *inputs.values())
    return o


@dataclass(frozen=True)
class _Call:
    """What a call has beside its tensors, which ``names`` names in their order."""

    problem: HstuProblem
    device: torch.device
    names: tuple[str, ...]
    stage: str
    arch: str
    options: Mapping[str, str]
    backward: str


class _HstuAttention(torch.autograd.Function):
    """Any backward rung needs the forward pass's inputs alone, so the two rungs are chosen independently."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor | None) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        inputs = dict(zip(call.names, tensors, strict=True))
        outputs = run_stage(
            call.problem,
            inputs,
            call.device,
            stage=call.stage,
            arch=call.arch,
            options=call.options,
        )
        return outputs["o"]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        inputs = dict(zip(call.names, ctx.saved_tensors, strict=True))
        inputs.update(d_o=d_o.contiguous(), d_rab=None)
        wanted = _differentiated(call.problem)
        outputs = run_stage(wanted, inputs, d_o.device, stage=call.backward, arch=call.arch)
        gradients = {name: outputs[f"d{name}"] for name in ("q", "k", "v")}
        if call.problem.bias_heads:
            gradients["rab"] = outputs["d_rab"].to(d_o.dtype)
        return None, *(gradients.get(name) for name in call.names)


def _differentiated(problem: HstuProblem) -> HstuBackwardProblem:
    """The backward pass of a forward problem."""
    return HstuBackwardProblem(**asdict(problem))
