"""Attention's forward pass on torch's tensors, in as little host time as Python takes."""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor

from ladder.call.arguments import Choices
from ladder.call.kept import Kept, kind_of
from ladder.call.runs import Run, prepare, require_backward
from ladder.operations import BackwardProblem, problem_of_tensors

#: Each is a few hundred bytes.
_runs: Kept[Run] = Kept(4096)


def prepared(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor | None,
    choices: Choices,
    differentiable: bool = False,
) -> Run:
    """The run of tensors like these, which is checked, chosen and built only once.

    It takes what :func:`inputs_of` returns; its outputs are o and lse. Raises :class:`InvalidProblem`, and
    :class:`UnsupportedProblem` also if they are to be ``differentiable`` and no such stage computes their
    gradients.
    """
    kind = kind_of((query, key, value, sinks), *choices, differentiable)
    run = _runs.get(kind)
    if run is None:
        problem = problem_of_tensors(
            query,
            key,
            value,
            choices.is_causal,
            choices.scale,
            choices.enable_gqa,
            choices.window_size,
            choices.softcap,
            sinks,
        )
        if differentiable:
            require_backward(BackwardProblem(**asdict(problem)), choices.backward, choices.deterministic)
        inputs = dict(zip(INPUTS, inputs_of(query, key, value, sinks), strict=True))
        run = prepare(problem, inputs, query.device, choices.of_forward)
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
