"""Gradients of attention computed by a backward rung: ``torch.ops.ladder.attention_backward``.

All backward rungs need only q, k, v, o and lse, so the two rungs are chosen independently; by default, the
backward one is the highest that takes the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ladder.call import flops, forward
from ladder.call.arguments import Arguments, Choices
from ladder.call.kept import Kept, kind_of
from ladder.call.runs import Run, prepare
from ladder.call.transforms import gradients_need_operator, require_active
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import BackwardProblem, Problem, problem_of_tensors

#: What the operator takes besides tensors.
ARGUMENTS = Arguments(
    *("is_causal", "scale", "backward", "arch", "deterministic", "window_size", "softcap"), of_gradients=True
)
_SCHEMA = (
    "(Tensor d_o, Tensor? d_lse, Tensor query, Tensor key, Tensor value, Tensor o, Tensor lse, "
    f"{ARGUMENTS.schema}, Tensor? sinks=None) "
    "-> (Tensor d_query, Tensor d_key, Tensor d_value, Tensor d_sinks)"
)
#: d_query, d_key, d_value and d_sinks.
Gradients = tuple[Tensor, Tensor, Tensor, Tensor]
_runs: Kept[Run] = Kept(4096)


def run(
    d_o: Tensor,
    d_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    o: Tensor,
    lse: Tensor,
    *given: Any,
) -> Gradients:
    """Computes d_query (B, H, N, d), d_key and d_value (B, Hkv, M, d) from d_o (B, H, N, d) and d_lse (B, H,
    N), which may be None; and d_sinks (H), which is empty without sinks. ``given`` are :data:`ARGUMENTS`,
    then sinks.

    Raises :class:`InvalidProblem` for tensors that do not match the forward pass's, and
    :class:`UnsupportedProblem` if the stage does not take the problem.
    """
    choices, sinks = ARGUMENTS.read(given)
    inputs = gradient_inputs(query, key, value, sinks, o, lse, d_o, d_lse)
    d_query, d_key, d_value, *d_sinks = prepared_gradients(inputs, choices)(*inputs)
    return d_query, d_key, d_value, d_sinks[0] if d_sinks else lse.new_empty(0)


#: The names of a run's inputs in the operation; without sinks ``d_sinks``, which then is no output, follows.
_INPUTS = (*forward.INPUTS, "o", "lse", "d_o", "d_lse")


def gradient_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor | None,
    o: Tensor,
    lse: Tensor,
    d_o: Tensor,
    d_lse: Tensor | None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """The inputs of a run."""
    of_forward = forward.inputs_of(query, key, value, sinks, cu_seqlens_q, cu_seqlens_k)
    inputs = (*of_forward, o, lse, d_o, d_lse)
    return inputs if sinks is not None else (*inputs, None)


def prepared_gradients(inputs: Sequence[Any], choices: Choices) -> Run:
    """The run of inputs like these, which is checked, chosen and built only once. Raises as :func:`run`."""
    query, key, value, sinks, _, _, o, lse, d_o, d_lse, *_ = inputs
    kind = kind_of(inputs, *ARGUMENTS.values(choices))
    known = _runs.get(kind)
    if known is None:
        problem = problem_of_tensors(
            query,
            key,
            value,
            choices.is_causal,
            choices.scale,
            True,
            choices.window_size,
            choices.softcap,
            sinks,
        )
        check_outputs(query, o, lse, d_o, d_lse, query.shape[:3])
        known = prepare_gradients(problem, inputs, choices)
        _runs.keep(kind, known)
    return known


def prepare_gradients(problem: Problem, inputs: Sequence[Any], choices: Choices) -> Run:
    """The run of the gradients of a problem, on inputs like these. Raises :class:`UnsupportedProblem`."""
    named = dict(zip((*_INPUTS, "d_sinks"), inputs, strict=False))
    wanted = BackwardProblem(**{**asdict(problem), "lse_gradient": named["d_lse"] is not None})
    return prepare(wanted, named, inputs[0].device, choices.of_gradients)


def check_outputs(
    query: Tensor, o: Tensor, lse: Tensor, d_o: Tensor, d_lse: Tensor | None, rows: Sequence[int]
) -> None:
    """Raises :class:`InvalidProblem` unless these are outputs and gradients of outputs of such a query."""
    for name, tensor in (("o", o), ("d_o", d_o)):
        _check(name, tensor, query, query.shape, query.dtype)
    for name, vector in (("lse", lse), ("d_lse", d_lse)):
        if vector is not None:
            _check(name, vector, query, rows, torch.float32)


def _check(name: str, tensor: Tensor, query: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
    if tensor.shape != shape:
        raise InvalidProblem(f"{name} is {tuple(tensor.shape)}; of this query it must be {tuple(shape)}")
    if tensor.dtype != dtype:
        raise InvalidProblem(f"{name} is {tensor.dtype}; it must be {dtype}", f"Pass {name}.to({dtype}).")
    if tensor.device != query.device:
        raise InvalidProblem(
            f"{name} is on {tensor.device} and query on {query.device}; all must be on one device"
        )
    if name != "d_o" and not tensor.is_contiguous():
        raise InvalidProblem(f"{name} is not contiguous", f"Pass {name}.contiguous().")


def _shapes(
    d_o: Tensor, d_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *others: Any
) -> Gradients:
    _, sinks = ARGUMENTS.read(others[2:])
    d_sinks = query.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32)
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape), d_sinks


def no_second_gradient(*_: Any) -> Any:
    raise UnsupportedProblem(
        "the ladder has first gradients only; there is no gradient through ladder.attention_backward",
        "Leave out create_graph=True, or take torch's attention where second gradients are wanted.",
    )


def _operator() -> Any:
    made = torch.library.custom_op("ladder::attention_backward", run, mutates_args=(), schema=_SCHEMA)
    made.register_fake(_shapes)
    made.register_autograd(no_second_gradient)
    return made


#: ``torch.ops.ladder.attention_backward``.
attention_backward = _operator()
flops.counts_gradients(torch.ops.ladder.attention_backward)


def of_outputs(
    d_o: Tensor | None, d_lse: Tensor | None, saved: tuple[Tensor, ...], choices: Choices
) -> Gradients:
    """The gradients from those of the outputs, None for one that has none; ``saved`` are query, key, value,
    o, lse and sinks.
    """
    require_active(d_o=d_o, d_lse=d_lse)
    *others, sinks = saved
    d_o = torch.zeros_like(saved[3]) if d_o is None else d_o
    d_lse = None if d_lse is None else d_lse.contiguous()
    function: Any = attention_backward if gradients_need_operator(d_o, d_lse, saved) else run
    gradients: Gradients = function(d_o, d_lse, *others, *ARGUMENTS.values(choices), sinks)
    return gradients
