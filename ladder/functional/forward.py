"""Attention's forward pass on torch's tensors, in as little host time as Python takes."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from ladder.functional.kept import Kept, kind_of
from ladder.functional.runs import Choice, Run, prepare, require_backward
from ladder.operations import BackwardProblem, problem_of_tensors
from ladder.stages import parse_options

#: Each is a few hundred bytes.
_runs: Kept[Run] = Kept(4096)


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
    choices = (is_causal, scale, enable_gqa, stage, arch, options, differentiable)
    kind = kind_of((query, key, value), *choices)
    run = _runs.get(kind)
    if run is None:
        problem = problem_of_tensors(query, key, value, is_causal, scale, enable_gqa)
        if differentiable:
            require_backward(BackwardProblem(**asdict(problem)))
        choice = Choice(stage, arch, tuple(parse_options(options).items()))
        run = prepare(problem, {"q": query, "k": key, "v": value}, query.device, choice)
        _runs.keep(kind, run)
    return run
