"""Attention as a torch operator, for use with ``torch.compile`` and whatever else traces torch's operators.

It is opaque to the compiler, which knows only its outputs' shapes and the operator of its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from ladder.call import flops, gradients
from ladder.call.forward import inputs_of, prepared
from ladder.call.runs import AUTO, require_backward_name

_SCHEMA = (
    "(Tensor query, Tensor key, Tensor value, bool is_causal=False, float? scale=None, "
    "bool enable_gqa=False, str stage='auto', str arch='', str options='', str backward='auto', "
    "bool deterministic=False, int[] window_size=[-1, -1], float? softcap=None, Tensor? sinks=None) "
    "-> (Tensor o, Tensor lse)"
)


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    stage: str = AUTO,
    arch: str = "",
    options: str = "",
    backward: str = AUTO,
    deterministic: bool = False,
    window_size: Sequence[int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """:func:`ladder.attention` with argument types that operators support.

    ``options`` is ``NAME=VALUE,...``. ``backward`` and ``deterministic`` are used only by autograd.
    """
    require_backward_name(backward)
    left, right = window_size
    choices = (is_causal, scale, enable_gqa, stage, arch, options, None)
    call = prepared(query, key, value, *choices, (left, right), softcap, sinks)
    o, lse = call(*inputs_of(query, key, value, sinks))
    return o, lse


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    del key
    of_o = (*query.shape[:3], value.shape[3])
    return query.new_empty(of_o), query.new_empty(query.shape[:3], dtype=torch.float32)


#: The arguments of :func:`run` with their defaults.
_DEFAULTS = {name: parameter.default for name, parameter in signature(run).parameters.items()}
#: Those that the gradients take besides tensors.
_CHOICES = ("is_causal", "scale", "backward", "arch", "deterministic", "window_size", "softcap")


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    given = {**_DEFAULTS, **dict(zip(_DEFAULTS, inputs, strict=False))}
    ctx.save_for_backward(given["query"], given["key"], given["value"], *output, given["sinks"])
    ctx.choices = [given[name] for name in _CHOICES]
    ctx.count = len(inputs)


def _backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
    *saved, sinks = ctx.saved_tensors
    found = gradients.attention_backward(d_o, d_lse.contiguous(), *saved, *ctx.choices, sinks)
    others: list[Tensor | None] = [None] * (ctx.count - 3)
    if sinks is not None:
        others[-1] = found[3]
    return *found[:3], *others


#: ``torch.ops.ladder.attention``.
attention: Any = torch.library.custom_op("ladder::attention", run, mutates_args=(), schema=_SCHEMA)
attention.register_fake(_shapes)
attention.register_autograd(_backward, setup_context=_save)
flops.counts_attention(torch.ops.ladder.attention)
