"""Attention computed by a rung, called like torch's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.functional import gradients, operators
from ladder.functional.forward import prepared
from ladder.functional.runs import AUTO, Run
from ladder.operations import require_strided
from ladder.stages import format_options

#: Tensors of other types want to see torch's operators.
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, Any] | None = None,
    backward: str = AUTO,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: query (B, H, N, d), key and value (B, Hkv, M, d) -> (o, lse).

    o (B, H, N, d) has query's dtype; lse (B, H, N), log(sum(exp(scaled logits))) of each row, is fp32.
    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. The arguments
    up to ``enable_gqa`` are those of ``torch.nn.functional.scaled_dot_product_attention``; no rung computes
    an ``attn_mask`` or a dropout. H may be a multiple of Hkv with ``enable_gqa``. Under autocast, the tensors
    are converted as for torch's attention.

    ``stage`` names the rung; "auto" is the highest, and so the fastest, that takes the problem on this GPU,
    or as ``arch``. A rung is chosen and built once per process; a new process notices changed sources.

    Tensors may have strides. Rungs with TMA take them as they lie if rows are contiguous and begin at
    multiples of 16 bytes from each other, and heads at multiples of a row or of 64 elements: slices of a
    fused projection, or ``x.transpose(1, 2)``. Other tensors, and those of other rungs, are copied first. o,
    lse and the gradients are contiguous.

    Both outputs are differentiable once. ``backward`` names the rung that computes the gradients, or is
    "auto". With ``deterministic`` that rung is a deterministic one: gradients are bitwise identical in every
    run.

    Raises :class:`InvalidProblem` for mismatched tensors, and :class:`UnsupportedProblem` if the stage does
    not take the problem, or if a tensor requires a gradient that no stage computes.
    """
    if attn_mask is not None or dropout_p != 0.0:
        _refuse(attn_mask, dropout_p)
    chosen = _option_words(options) if options else ""
    arguments = (is_causal, scale, enable_gqa, stage, arch or "", chosen)
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    if torch.compiler.is_compiling():
        query, key, value = _autocast(query, key, value)
        return _operator(query, key, value, *arguments, backward, deterministic)
    if not (type(query) in _PLAIN and type(key) in _PLAIN and type(value) in _PLAIN) or _is_transformed():
        if all(isinstance(tensor, Tensor) for tensor in (query, key, value)):
            return _of_other_tensors(query, key, value, *arguments, backward, deterministic)
    elif torch._C._is_any_autocast_enabled():
        query, key, value = _autocast(query, key, value)
    differentiable = torch.is_grad_enabled() and any(
        getattr(tensor, "requires_grad", False) for tensor in (query, key, value)
    )
    run = prepared(query, key, value, *arguments, differentiable)
    if differentiable:
        outputs: tuple[Tensor, Tensor] = _Attention.apply(
            query, key, value, run, (is_causal, scale, backward, arch or "", deterministic)
        )
        return outputs
    o, lse = run({"q": query, "k": key, "v": value})
    return o, lse


def _option_words(options: Any) -> str:
    if not isinstance(options, Mapping):
        raise InvalidProblem(f"options are {options!r}; they must be a mapping", 'For example {"KEYS": 32}.')
    return format_options(options)


def _refuse(attn_mask: Any, dropout_p: Any) -> None:
    if attn_mask is not None:
        raise UnsupportedProblem(
            "no rung computes an attn_mask",
            "is_causal=True is the causal mask; ladder.hstu_attention has masks of its own.",
        )
    raise UnsupportedProblem(
        f"dropout_p is {dropout_p!r}; no rung computes a dropout", "Pass 0.0, as in inference."
    )


def _is_transformed() -> bool:
    """Whether a transform of torch.func, forward-mode AD or a dispatch mode is active."""
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    )


def _of_other_tensors(query: Tensor, key: Tensor, value: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Attention as torch's transforms, modes and subclasses of tensors see it: by the operator."""
    require_strided(query=query, key=key, value=value)
    if forward_ad._current_level >= 0 and any(map(_has_tangent, (query, key, value))):
        raise UnsupportedProblem(
            "the ladder has no forward-mode derivatives (torch.func.jvp, torch.autograd.forward_ad)",
            "Take gradients by backward() or torch.autograd.grad(), or torch's own attention.",
        )
    transform = torch._C._functorch.peek_interpreter_stack()
    if transform is not None and transform.key() == torch._C._functorch.TransformType.Grad:
        raise UnsupportedProblem(
            "the ladder has no gradients through torch.func (grad, vjp, jacrev)",
            "Take them by backward() or torch.autograd.grad().",
        )
    return _operator(query, key, value, *arguments)


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


def _operator(*arguments: Any) -> tuple[Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor] = operators.attention(*arguments)
    return outputs


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in autocast's dtype, if it is on where they are and they are floats of another one."""
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        tensor.to(dtype) if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16) else tensor
        for tensor in tensors
    )


class _Attention(torch.autograd.Function):
    """A prepared run with its gradient: what the operator does, in less time."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, run: Run, choices: tuple[Any, ...]
    ) -> tuple[Tensor, Tensor]:
        o, lse = run({"q": query, "k": key, "v": value})
        ctx.save_for_backward(query, key, value, o, lse)
        ctx.choices = choices
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        found = gradients.of_outputs(d_o, d_lse, ctx.saved_tensors, *ctx.choices)
        return *found, None, None
