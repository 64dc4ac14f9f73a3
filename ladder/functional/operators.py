"""The stages as torch operators, for use with ``torch.compile`` and CUDA graphs.

:func:`ladder.attention` calls ``torch.ops.ladder.attention``; :func:`stage_operator` makes an operator of a
single stage. An operator is opaque to the compiler, which knows only its outputs' shapes and the operator of
its gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from ladder.functional import gradients
from ladder.functional.runs import AUTO, run_stage
from ladder.operations import problem_of_tensors
from ladder.stages import discover, parse_options

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, bool is_causal=False, float? scale=None, bool enable_gqa=False"
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
) -> tuple[Tensor, Tensor]:
    """:func:`ladder.attention` with argument types that operators support.

    ``options`` is ``NAME=VALUE,...``. ``backward`` is used only by autograd.
    """
    problem = problem_of_tensors(query, key, value, is_causal, scale, enable_gqa)
    inputs = {"q": query, "k": key, "v": value}
    chosen = parse_options(options)
    outputs = run_stage(problem, inputs, query.device, stage=stage, arch=arch, options=chosen)
    return outputs["o"], outputs["lse"]


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(query.shape[:3], dtype=torch.float32)


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
    gradients.register(made, _arguments_of(function))
    return made


#: ``torch.ops.ladder.attention``.
attention = _operator(
    "attention", run, f"{_ARGUMENTS}, str stage='auto', str arch='', str options='', str backward='auto'"
)


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
