"""Attention's forward pass on torch's tensors, in as little host time as Python takes."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from ladder.call.kept import Kept, kind_of
from ladder.call.runs import Choice, Run, prepare, require_backward
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
    gradients_by: tuple[str, bool] | None,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Run:
    """The run of tensors like these, which is checked, chosen and built only once.

    It takes what :func:`inputs_of` returns; its outputs are o and lse. ``gradients_by`` is None without
    gradients, else the stage that is to compute them and whether that must be deterministic. Raises
    :class:`InvalidProblem`, and :class:`UnsupportedProblem` also if that stage does not take the problem.
    """
    choices = (is_causal, scale, enable_gqa, stage, arch, options, gradients_by, window_size, softcap)
    kind = kind_of((query, key, value, sinks), *choices)
    run = _runs.get(kind)
    if run is None:
        problem = problem_of_tensors(
            query, key, value, is_causal, scale, enable_gqa, window_size, softcap, sinks
        )
        if gradients_by is not None:
            require_backward(BackwardProblem(**asdict(problem)), *gradients_by)
        choice = Choice(stage, arch, tuple(parse_options(options).items()))
        inputs = dict(zip(INPUTS, inputs_of(query, key, value, sinks), strict=True))
        run = prepare(problem, inputs, query.device, choice)
        _runs.keep(kind, run)
    return run


#: The names of a run's inputs in the operation.
INPUTS = ("q", "k", "v", "sinks", "cu_seqlens_q", "cu_seqlens_k")


def inputs_of(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """The inputs of a run, in the order of :data:`INPUTS`."""
    return query, key, value, None if sinks is None else sinks.contiguous(), cu_seqlens_q, cu_seqlens_k
