"""The stages as torch operators, so that ``torch.compile`` and CUDA graphs take them.

``torch.ops.ladder.attention`` is what :func:`ladder.attention` calls; :func:`stage_operator` makes one of a
single stage. An operator is opaque to the compiler: of it the compiler knows the shapes of the outputs alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ladder.backends import get_backend
from ladder.build import build
from ladder.errors import UnsupportedProblem
from ladder.problem import Problem
from ladder.stages import Stage, discover, parse_options

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
    stage: str = "",
    arch: str = "",
    options: str = "",
) -> tuple[Tensor, Tensor]:
    """What :func:`ladder.attention` does, with arguments that an operator can have.

    ``stage`` is empty for the highest that takes the problem, ``options`` is ``NAME=VALUE,...``.
    """
    from ladder.functional import problem_of

    problem = problem_of(query, key, value, is_causal, scale, enable_gqa)
    if query.device.type == "cpu":
        return _run(problem, query, key, value, stage, arch, options)
    with torch.cuda.device(query.device):
        return _run(problem, query, key, value, stage, arch, options)


def _run(
    problem: Problem, query: Tensor, key: Tensor, value: Tensor, stage: str, arch: str, options: str
) -> tuple[Tensor, Tensor]:
    backend = get_backend("emulator" if query.device.type == "cpu" else "cuda")
    chosen = discover()[stage] if stage else _highest(problem)
    problem = chosen.accept(problem)
    target = backend.target(chosen, arch or None)
    extension = build(chosen, target, chosen.chosen_options(parse_options(options)))
    execution = backend.execute(extension, target, problem, query.detach(), key.detach(), value.detach())
    return execution.o, execution.lse


def _highest(problem: Problem) -> Stage:
    refusals = []
    for stage in reversed(discover().stages):
        try:
            stage.accept(problem)
            return stage
        except UnsupportedProblem as error:
            refusals.append(error.message)
    raise UnsupportedProblem("no stage takes this problem:\n" + "\n".join(refusals))


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), query.new_empty(query.shape[:3], dtype=torch.float32)


def _no_backward(*_: Any) -> Any:
    raise UnsupportedProblem(
        "the ladder has forward passes only; there is no gradient through its attention",
        "Call it under torch.no_grad(), or pass detached tensors.",
    )


def _operator(name: str, function: Callable[..., tuple[Tensor, Tensor]], arguments: str) -> Any:
    made = torch.library.custom_op(
        f"ladder::{name}", function, mutates_args=(), schema=f"({arguments}) -> {_OUTPUTS}"
    )
    made.register_fake(_shapes)
    made.register_autograd(_no_backward)
    return made


#: ``torch.ops.ladder.attention``.
attention = _operator("attention", run, f"{_ARGUMENTS}, str stage='', str arch='', str options=''")


@functools.cache
def stage_operator(stage: str) -> Any:
    """The operator of one stage, which is ``torch.ops.ladder.<stage>`` from then on.

    It takes query, key, value, is_causal, scale, enable_gqa and returns (o, lse). Raises :class:`StageError`
    when there is no such stage.
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
