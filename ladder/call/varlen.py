"""Attention over sequences of different lengths, called like torch's own, and as torch operators:
``torch.ops.ladder.varlen_attention`` and ``torch.ops.ladder.varlen_attention_backward``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ladder.call import flops, gradients, native
from ladder.call.arguments import Arguments, Choices
from ladder.call.forward import INPUTS, inputs_of
from ladder.call.kept import Kept, Kind, kind_of
from ladder.call.runs import AUTO, Run, option_words, prepare, require_backward, require_backward_name
from ladder.call.transforms import (
    autocast,
    gradients_need_operator,
    must_be_deterministic,
    needs_operator,
    require_active,
)
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import BackwardProblem, Problem, problem_of_sequences


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: None = None,
    block_table: None = None,
    num_splits: int | None = None,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, Any] | None = None,
    backward: str = AUTO,
    deterministic: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of sequences: query (total_q, H, d), key and value (total_k, Hkv, d) -> o (total_q, H, d).

    Sequence b has the tokens ``cu_seq_q[b]`` to ``cu_seq_q[b + 1] - 1`` of query and those given by
    ``cu_seq_k`` of key and value; both are (B + 1), int32. The arguments up to ``num_splits`` are those of
    ``torch.nn.attention.varlen.varlen_attn``. ``max_q`` and ``max_k`` are at least the longest sequences'
    lengths; tensors of one integer are read. If ``return_aux.lse``, lse (H, total_q) in fp32 is returned,
    too, in the shape of torch's.

    ``window_size`` is aligned to the lower right of each sequence: query i of n is at the position of key i +
    m - n of m. (-1, 0) is causal. A row that sees no key has o = 0, lse = -inf and gradients of 0. Both
    outputs are differentiable once.

    The offsets are read, which synchronises with the GPU, once for tensors that are passed again and that
    torch has not changed since. :func:`ladder.attention` says what the other arguments mean.

    Raises :class:`InvalidProblem` for mismatched tensors, and for offsets that decrease or do not end with
    the tokens; :class:`UnsupportedProblem` for what no rung computes.

    >>> query, key, value = (torch.randn(150, 2, 64, dtype=torch.float16) for _ in range(3))
    >>> offsets = torch.tensor([0, 100, 150], dtype=torch.int32)  # of sequences of 100 and 50 tokens
    >>> ladder.varlen_attention(query, key, value, offsets, offsets, 100, 100, window_size=(-1, 0)).shape
    torch.Size([150, 2, 64])
    """
    for name, unused in (("seqused_k", seqused_k), ("block_table", block_table), ("num_splits", num_splits)):
        if unused is not None:
            raise UnsupportedProblem(f"no rung computes {name}", "Leave it out.")
    if cu_seq_k is None:
        raise InvalidProblem("cu_seq_k is None, which torch takes with a block_table alone", "Pass cu_seq_q.")
    window = tuple(window_size) if isinstance(window_size, list) else window_size
    choices = Choices(
        scale=scale,
        enable_gqa=enable_gqa,
        stage=stage,
        arch=arch or "",
        options=option_words(options),
        backward=backward,
        deterministic=deterministic,
        window_size=window,
    )
    o, lse = _outputs((query, key, value), (cu_seq_q, cu_seq_k), (max_q, max_k), choices)
    return (o, lse) if return_aux is not None and return_aux.lse else o


def _outputs(
    tensors: tuple[Tensor, Tensor, Tensor],
    marks: tuple[Tensor, Tensor],
    longest: tuple[Any, Any],
    choices: Choices,
) -> tuple[Tensor, Tensor]:
    query, key, value = tensors
    is_compiling = torch.compiler.is_compiling()
    if is_compiling or torch._C._is_any_autocast_enabled():
        query, key, value = autocast(query, key, value)
    tensors = (query, key, value)
    differentiable = torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors)
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    is_traced = is_compiling or needs_operator(query, key, value)
    if is_traced or differentiable:
        choices = choices._replace(deterministic=must_be_deterministic(choices.deterministic))
    if is_traced:
        return _operator_outputs(tensors, marks, longest, choices)
    longest = (_integer(longest[0]), _integer(longest[1]))
    call = prepared_sequences(tensors, marks, longest, choices, differentiable)
    inputs = inputs_of(query, key, value, None, *marks)
    if not differentiable:
        o, lse = call.run(*inputs)
        return o, lse
    if call.run.plan is ...:
        call.run.plan = _plan(call, choices)
    if call.run.plan is None:
        return _operator_outputs(tensors, marks, longest, choices)
    return native.apply(call.run.plan, *inputs)


def _operator_outputs(
    tensors: Sequence[Tensor], marks: Sequence[Tensor], longest: tuple[Any, Any], choices: Choices
) -> tuple[Tensor, Tensor]:
    outputs: tuple[Tensor, Tensor] = varlen_operator(*tensors, *marks, *longest, *_ARGUMENTS.values(choices))
    return outputs


@dataclass(frozen=True)
class _Call:
    """What calls of a kind share. It keeps the offsets, so that no other tensors can have their identity."""

    problem: Problem
    run: Run
    marks: tuple[Tensor, Tensor]


_calls: Kept[_Call] = Kept(64)


def prepared_sequences(
    tensors: tuple[Tensor, Tensor, Tensor],
    marks: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    choices: Choices,
    differentiable: bool = False,
) -> _Call:
    """What calls like this share. Raises as :func:`ladder.call.forward.prepared`."""
    kind = _kind(tensors, marks, (*longest, *choices, differentiable))
    call = _calls.get(kind)
    if call is None:
        problem = problem_of_sequences(
            *tensors, *marks, choices.scale, choices.enable_gqa, choices.window_size
        )
        _check_longest("max_q", longest[0], problem.q_len)
        _check_longest("max_k", longest[1], problem.kv_len)
        if differentiable:
            require_backward(BackwardProblem(**asdict(problem)), choices.backward, choices.deterministic)
        inputs = dict(zip(INPUTS, inputs_of(*tensors, None, *marks), strict=True))
        call = _Call(problem, prepare(problem, inputs, tensors[0].device, choices.of_forward), marks)
        _calls.keep(kind, call)
    return call


def _plan(call: _Call, choices: Choices) -> Tensor | None:
    """The plan of a call with its gradients; None where the operator computes them."""
    problem = call.problem  # alone: the plan must not refer to the call, which keeps it

    def prepare(*inputs: Tensor | None) -> Run:
        return gradients.prepare_gradients(problem, inputs, choices)

    def otherwise(d_o: Tensor, d_lse: Tensor | None, saved: tuple[Any, ...]) -> tuple[Tensor, ...]:
        query, key, value, _, *others = saved
        return _gradients_of_outputs(d_o, d_lse, (query, key, value, *others), choices)

    return native.plan_of(call.run, prepare, otherwise)


def _gradients_of_outputs(
    d_o: Tensor | None, d_lse: Tensor | None, saved: tuple[Tensor, ...], choices: Choices
) -> tuple[Tensor, ...]:
    """As :func:`ladder.call.gradients.of_outputs`; ``saved`` are query, key, value, offsets, o and lse."""
    require_active(d_o=d_o, d_lse=d_lse)
    d_o = torch.zeros_like(saved[5]) if d_o is None else d_o
    d_lse = None if d_lse is None else d_lse.contiguous()
    function: Any = varlen_backward_operator if gradients_need_operator(d_o, d_lse, saved) else _run_backward
    found: tuple[Tensor, ...] = function(d_o, d_lse, *saved, *_OF_GRADIENTS.values(choices))
    return found


def _kind(tensors: tuple[Tensor, ...], marks: tuple[Tensor, Tensor], given: tuple[Any, ...]) -> Kind:
    """The kind of a call, with the offsets by identity and version: these need not be read again."""
    try:
        versions = [(id(x), x._version) for x in marks]
    except (AttributeError, RuntimeError):
        return ()  # something is no tensor, or has no version
    return kind_of(tensors, *versions, *given)


def _integer(given: Any) -> Any:
    """As an int, if it is an integer, such as a tensor of one; what is none is refused with the problem."""
    try:
        return operator.index(given)
    except (TypeError, RuntimeError):
        return given


def _check_longest(name: str, given: Any, longest: int) -> None:
    if not isinstance(given, int):
        raise InvalidProblem(f"{name} is {given!r}; it must be an integer")
    if given < longest:
        raise InvalidProblem(f"{name} is {given!r}; the longest sequence has {longest} tokens")


#: What the operators take besides tensors and the longest lengths.
_ARGUMENTS = Arguments(
    *("scale", "window_size", "enable_gqa", "stage", "arch", "options", "backward", "deterministic")
)
_OF_GRADIENTS = Arguments(*("scale", "window_size", "backward", "arch", "deterministic"), of_gradients=True)


def _run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *given: Any,
) -> tuple[Tensor, Tensor]:
    """:func:`varlen_attention` with argument types that operators support; returns o and lse."""
    choices, _ = _ARGUMENTS.read(given)
    require_backward_name(choices.backward)
    marks = (cu_seq_q, cu_seq_k)
    call = prepared_sequences((query, key, value), marks, (max_q, max_k), choices)
    o, lse = call.run(*inputs_of(query, key, value, None, *marks))
    return o, lse


def _run_backward(
    d_o: Tensor,
    d_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    o: Tensor,
    lse: Tensor,
    *given: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes d_query (total_q, H, d), d_key and d_value (total_k, Hkv, d) from d_o (total_q, H, d) and
    d_lse (H, total_q), which may be None. Raises as :func:`ladder.call.gradients.run`.
    """
    choices, _ = _OF_GRADIENTS.read(given)
    gradients.check_outputs(query, o, lse, d_o, d_lse, (query.shape[1], query.shape[0]))
    marks = (cu_seq_q, cu_seq_k)
    problem = problem_of_sequences(query, key, value, *marks, choices.scale, True, choices.window_size)
    inputs = gradients.gradient_inputs(query, key, value, None, o, lse, d_o, d_lse, *marks)
    d_query, d_key, d_value = gradients.prepare_gradients(problem, inputs, choices)(*inputs)
    return d_query, d_key, d_value


def _operator() -> Any:
    made = torch.library.custom_op(
        "ladder::varlen_attention",
        _run,
        mutates_args=(),
        schema="(Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, Tensor cu_seq_k, int max_q, "
        f"int max_k, {_ARGUMENTS.schema}) -> (Tensor o, Tensor lse)",
    )

    @made.register_fake
    def _(query: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        lse = query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)
        return query.new_empty(query.shape), lse

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:5], *output)
        ctx.set_materialize_grads(False)
        ctx.choices, _ = _ARGUMENTS.read(inputs[7:])
        ctx.count = len(inputs)

    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        found = _gradients_of_outputs(d_o, d_lse, ctx.saved_tensors, ctx.choices)
        return *found, *[None] * (ctx.count - 3)

    made.register_autograd(backward, setup_context=save)
    return made


def _backward_operator() -> Any:
    made = torch.library.custom_op(
        "ladder::varlen_attention_backward",
        _run_backward,
        mutates_args=(),
        schema="(Tensor d_o, Tensor? d_lse, Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, "
        f"Tensor cu_seq_k, Tensor o, Tensor lse, {_OF_GRADIENTS.schema}) "
        "-> (Tensor d_query, Tensor d_key, Tensor d_value)",
    )

    @made.register_fake
    def _(d_o: Tensor, d_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Any:
        return tuple(x.new_empty(x.shape) for x in (query, key, value))

    made.register_autograd(gradients.no_second_gradient)
    return made


#: ``torch.ops.ladder.varlen_attention`` and ``torch.ops.ladder.varlen_attention_backward``.
varlen_operator, varlen_backward_operator = _operator(), _backward_operator()
flops.counts_sequences(torch.ops.ladder.varlen_attention, flops.pairs_of_offsets)
flops.counts_sequences(torch.ops.ladder.varlen_attention_backward, flops.pairs_of_offsets, first=2)
