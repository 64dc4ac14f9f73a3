"""The stages as torch operators, for use with ``torch.compile`` and whatever else traces torch's operators.

An operator is opaque to the compiler, which knows only its outputs' shapes and the operator of its gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from ladder.functional import gradients
from ladder.functional.forward import inputs_of, prepared
from ladder.functional.runs import AUTO
from ladder.stages import discover

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, bool is_causal=False, float? scale=None, bool enable_gqa=False"
)
_CHOICES = (
    "str stage='auto', str arch='', str options='', str backward='auto', bool deterministic=False, "
    "int[] window_size=[-1, -1], float? softcap=None, Tensor? sinks=None"
)
_OUTPUTS = "(Tensor o, Tensor lse)"


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
    left, right = window_size
    choices = (is_causal, scale, enable_gqa, stage, arch, options, False)
    call = prepared(query, key, value, *choices, (left, right), softcap, sinks)
    o, lse = call(*inputs_of(query, key, value, sinks))
    return o, lse


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    del key, value
    return query.new_empty(query.shape), query.new_empty(query.shape[:3], dtype=torch.float32)


def _arguments_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Turns positional arguments into named ones, with the defaults of :func:`run`."""
    names, all_of_run = signature(function).parameters, signature(run).parameters
    defaults = {name: one.default for name, one in all_of_run.items()}
    return lambda *values: {**defaults, **dict(zip(names, values, strict=False))}


def _operator(name: str, function: Callable[..., tuple[Tensor, Tensor]], arguments: str) -> Any:
    made = torch.library.custom_op(
        f"ladder::{name}", function, mutates_args=(), schema=f"({arguments}) -> {_OUTPUTS}"
    )
    made.register_fake(_shapes)
    _register_gradient(made, _arguments_of(function))
    return made


def _register_gradient(forward: Any, names: Callable[..., dict[str, Any]]) -> None:
    """Registers the gradient of a forward operator. ``names`` turns its arguments into keyword arguments."""

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        arguments = names(*inputs)
        ctx.save_for_backward(
            arguments["query"], arguments["key"], arguments["value"], *output, arguments["sinks"]
        )
        names_of_choices = (
            "is_causal",
            "scale",
            "backward",
            "arch",
            "deterministic",
            "window_size",
            "softcap",
        )
        ctx.choices = [arguments[name] for name in names_of_choices]
        ctx.count = len(inputs)

    def backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
        *saved, sinks = ctx.saved_tensors
        found = gradients.attention_backward(d_o, d_lse.contiguous(), *saved, *ctx.choices, sinks)
        others: list[Tensor | None] = [None] * (ctx.count - 3)
        if sinks is not None:
            others[-1] = found[3]
        return *found[:3], *others

    forward.register_autograd(backward, setup_context=save)


#: ``torch.ops.ladder.attention``.
attention = _operator("attention", run, f"{_ARGUMENTS}, {_CHOICES}")


@functools.cache
def stage_operator(stage: str) -> Any:
    """Returns the operator of one stage, registered as ``torch.ops.ladder.<stage>``.

    It takes query, key, value, is_causal, scale, enable_gqa and returns (o, lse). Raises :class:`StageError`
    if there is no such stage.
    """

    def of_stage(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> tuple[Tensor, Tensor]:
        return run(query, key, value, is_causal, scale, enable_gqa, stage)

    return _operator(discover()[stage].name, of_stage, _ARGUMENTS)
