"""Attention's forward pass on torch's tensors, in as little host time as Python takes."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from torch import Tensor

from ladder.functional.runs import Choice, Run, prepare, require_backward
from ladder.operations import BackwardProblem, problem_of_tensors
from ladder.stages import parse_options

#: So many runs are kept; then all are forgotten. Each is a few hundred bytes.
MOST_RUNS = 4096
_runs: dict[tuple[Any, ...], Run] = {}


def prepared(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    stage: str,
    arch: str,
    options: str,
    differentiable: bool,
) -> Run:
    """The run of tensors like these, which is checked, chosen and built only once.

    It takes ``q``, ``k`` and ``v``; its outputs are o and lse. Raises :class:`InvalidProblem` and
    :class:`UnsupportedProblem`, if it is to be ``differentiable`` also where no stage computes the gradients.
    """
    kind: tuple[Any, ...]
    try:
        kind = (
            *(query.shape, query.stride(), query.dtype, query.device),
            *(key.shape, key.stride(), key.dtype, key.device),
            *(value.shape, value.stride(), value.dtype, value.device),
            *(is_causal, scale, enable_gqa, stage, arch, options, differentiable),
            os.environ.get("LADDER_STAGES"),
        )
        run = _runs.get(kind)
    except (AttributeError, TypeError, RuntimeError):
        kind, run = (), None  # something has no strides, or no hash: the checks say what
    if run is None:
        problem = problem_of_tensors(query, key, value, is_causal, scale, enable_gqa)
        if differentiable:
            require_backward(BackwardProblem(**asdict(problem)))
        choice = Choice(stage, arch, tuple(parse_options(options).items()))
        run = prepare(problem, {"q": query, "k": key, "v": value}, query.device, choice)
        keep(_runs, kind, run)
    return run


def keep(runs: dict[tuple[Any, ...], Run], kind: tuple[Any, ...], run: Run) -> None:
    """Keeps a run for calls of its kind."""
    if len(runs) >= MOST_RUNS:
        runs.clear()
    runs[kind] = run
