"""Attention as a torch operator, for use with ``torch.compile`` and whatever else traces torch's operators,
and for gradients where :mod:`ladder.call.native` has no function.

It is opaque to the compiler, which knows only its outputs' shapes and the operator of its gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ladder.call import flops, gradients
from ladder.call.arguments import Arguments, Choices
from ladder.call.forward import inputs_of, prepared
from ladder.call.runs import require_backward_name

_ARGUMENTS = Arguments(*Choices._fields)
_SCHEMA = (
    f"(Tensor query, Tensor key, Tensor value, {_ARGUMENTS.schema}, Tensor? sinks=None) "
    "-> (Tensor o, Tensor lse)"
)


def run(query: Tensor, key: Tensor, value: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    """:func:`ladder.attention` with argument types that operators support: :class:`Choices`, then sinks."""
    choices, sinks = _ARGUMENTS.read(given)
    require_backward_name(choices.backward)
    o, lse = prepared(query, key, value, sinks, choices)(*inputs_of(query, key, value, sinks))
    return o, lse


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    del key
    of_o = (*query.shape[:3], value.shape[3])
    return query.new_empty(of_o), query.new_empty(query.shape[:3], dtype=torch.float32)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, *given = inputs
    ctx.choices, sinks = _ARGUMENTS.read(given)
    ctx.save_for_backward(query, key, value, *output, sinks)
    ctx.set_materialize_grads(False)
    ctx.count = len(given)


def _backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # once: a checkpoint computes them again each time
    *found, d_sinks = gradients.of_outputs(d_o, d_lse, saved, ctx.choices)
    others: list[Tensor | None] = [None] * ctx.count
    if saved[-1] is not None:
        others[-1] = d_sinks
    return *found, *others


#: ``torch.ops.ladder.attention``.
attention: Any = torch.library.custom_op("ladder::attention", run, mutates_args=(), schema=_SCHEMA)
attention.register_fake(_shapes)
attention.register_autograd(_backward, setup_context=_save)
flops.counts_attention(torch.ops.ladder.attention)
