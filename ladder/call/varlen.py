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
from ladder.call.forward import INPUTS, inputs_of
from ladder.call.kept import Kept, Kind, kind_of, strides_of
from ladder.call.runs import (
    AUTO,
    Choice,
    Run,
    option_words,
    prepare,
    require_backward,
    require_backward_name,
)
from ladder.call.transforms import (
    autocast,
    is_batched,
    must_be_deterministic,
    needs_operator,
    require_active,
)
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import BackwardProblem, Problem, problem_of_sequences
from ladder.stages import parse_options


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
    """
    for name, unused in (("seqused_k", seqused_k), ("block_table", block_table), ("num_splits", num_splits)):
        if unused is not None:
            raise UnsupportedProblem(f"no rung computes {name}", "Leave it out.")
    if cu_seq_k is None:
        raise InvalidProblem("cu_seq_k is None, which torch takes with a block_table alone", "Pass cu_seq_q.")
    window = tuple(window_size) if isinstance(window_size, list) else window_size
    given = (max_q, max_k, scale, window, enable_gqa, stage, arch or "", option_words(options))
    tensors = (query, key, value, cu_seq_q, cu_seq_k)
    o, lse = _outputs(tensors, given, backward, deterministic)
    return (o, lse) if return_aux is not None and return_aux.lse else o


def _outputs(
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    given: tuple[Any, ...],
    backward: str,
    deterministic: bool,
) -> tuple[Tensor, Tensor]:
    query, key, value, *marks = tensors
    is_compiling = torch.compiler.is_compiling()
    if is_compiling or torch._C._is_any_autocast_enabled():
        query, key, value = autocast(query, key, value)
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    if is_compiling or needs_operator(query, key, value):
        qkv = (query, key, value)
        deterministic = must_be_deterministic(deterministic)
        outputs: tuple[Tensor, Tensor] = varlen_operator(*qkv, *marks, *given, backward, deterministic)
        return outputs
    differentiable = torch.is_grad_enabled() and any(
        getattr(tensor, "requires_grad", False) for tensor in (query, key, value)
    )
    deterministic = must_be_deterministic(deterministic) if differentiable else deterministic
    max_q, max_k, *others = given
    given = (_integer(max_q), _integer(max_k), *others)
    gradients_by = (backward, deterministic) if differentiable else None
    call = prepared_sequences((query, key, value), (marks[0], marks[1]), gradients_by, *given)
    if differentiable:
        *_, arch, _ = given
        choices = (backward, arch, deterministic)
        if (plan := _plan_of(call, choices)) is not None:
            return native.apply(plan, query, key, value, None, *marks)
        outputs = _VarlenAttention.apply(query, key, value, *marks, call, choices)
        return outputs
    o, lse = call.run(*inputs_of(query, key, value, None, *marks))
    return o, lse


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
    gradients_by: tuple[str, bool] | None,
    max_q: int,
    max_k: int,
    scale: float | None,
    window: tuple[int, int],
    enable_gqa: bool,
    stage: str,
    arch: str,
    options: str,
) -> _Call:
    """What calls like this share; ``gradients_by`` is that of :func:`ladder.call.forward.prepared`."""
    given = (max_q, max_k, scale, window, enable_gqa, stage, arch, options, gradients_by)
    kind = _kind(tensors, marks, given)
    call = _calls.get(kind)
    if call is None:
        problem = problem_of_sequences(*tensors, *marks, scale, enable_gqa, window)
        _check_longest("max_q", max_q, problem.q_len)
        _check_longest("max_k", max_k, problem.kv_len)
        if gradients_by is not None:
            require_backward(BackwardProblem(**asdict(problem)), *gradients_by)
        inputs = dict(zip(INPUTS, inputs_of(*tensors, None, *marks), strict=True))
        choice = Choice(stage, arch, tuple(parse_options(options).items()))
        call = _Call(problem, prepare(problem, inputs, tensors[0].device, choice), marks)
        _calls.keep(kind, call)
    return call


def _plan_of(call: _Call, choices: tuple[str, str, bool]) -> Tensor | None:
    """The plan of a call with its gradients, made once; None: :class:`_VarlenAttention` is to be used."""
    plans = call.run.plans
    if choices not in plans:
        problem = call.problem  # alone: the plan must not refer to the call, which keeps it

        def prepare(*inputs: Tensor | None) -> Run:
            return _prepared_gradients(problem, inputs, *choices)

        def otherwise(d_o: Tensor, d_lse: Tensor | None, saved: tuple[Any, ...]) -> tuple[Tensor, ...]:
            query, key, value, _, *others = saved
            return _once_differentiable(problem, choices, d_o, d_lse, (query, key, value, *others))

        plans[choices] = native.plan_of(call.run, prepare, otherwise)
    return plans[choices]


class _VarlenAttention(torch.autograd.Function):
    """A prepared call with its gradient: what the operator does, in less time."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        call: _Call,
        choices: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        o, lse = call.run(*inputs_of(query, key, value, None, cu_seq_q, cu_seq_k))
        ctx.save_for_backward(query, key, value, cu_seq_q, cu_seq_k, o, lse)
        ctx.call, ctx.choices = call, choices
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor | None, d_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, cu_seq_q, cu_seq_k, o, lse = saved = ctx.saved_tensors
        d_o = torch.zeros_like(o) if d_o is None else d_o
        d_lse = None if d_lse is None else d_lse.contiguous()
        if torch.is_grad_enabled() or is_batched(d_o, d_lse):
            found = _once_differentiable(ctx.call.problem, ctx.choices, d_o, d_lse, saved)
        else:
            marks = (cu_seq_q, cu_seq_k)
            inputs = gradients.gradient_inputs(query, key, value, None, o, lse, d_o, d_lse, *marks)
            found = _gradients_of(ctx.call, inputs, *ctx.choices)(*inputs)
        return *found, None, None, None, None


def _gradients_of(call: _Call, inputs: Sequence[Any], stage: str, arch: str, deterministic: bool) -> Run:
    """The run of a call's gradients, whose last inputs are d_o, d_lse and a missing d_sinks."""
    kind = (strides_of(inputs), stage, arch, deterministic)
    run = call.run.gradients.get(kind)
    if run is None:
        run = call.run.gradients[kind] = _prepared_gradients(call.problem, inputs, stage, arch, deterministic)
    return run


def _prepared_gradients(
    problem: Problem, inputs: Sequence[Any], stage: str, arch: str, deterministic: bool
) -> Run:
    d_lse = inputs[-2]
    wanted = BackwardProblem(**{**asdict(problem), "lse_gradient": d_lse is not None})
    return gradients.prepare_gradients(wanted, inputs, Choice(stage, arch, deterministic=deterministic))


def _once_differentiable(
    problem: Problem,
    choices: tuple[str, str, bool],
    d_o: Tensor,
    d_lse: Tensor | None,
    saved: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """The gradients by the operator: it refuses to be differentiated again, and computes several at once."""
    require_active(d_o=d_o, d_lse=d_lse)
    window = problem.window or (-1, -1)
    found: tuple[Tensor, ...] = varlen_backward_operator(d_o, d_lse, *saved, problem.scale, window, *choices)
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


def _run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    scale: float | None = None,
    window_size: Sequence[int] = (-1, -1),
    enable_gqa: bool = False,
    stage: str = AUTO,
    arch: str = "",
    options: str = "",
    backward: str = AUTO,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """:func:`varlen_attention` with argument types that operators support; returns o and lse.

    ``options`` is ``NAME=VALUE,...``. ``backward`` and ``deterministic`` are used only by autograd.
    """
    require_backward_name(backward)
    left, right = window_size
    given = (max_q, max_k, scale, (left, right), enable_gqa, stage, arch, options)
    call = prepared_sequences((query, key, value), (cu_seq_q, cu_seq_k), None, *given)
    o, lse = call.run(*inputs_of(query, key, value, None, cu_seq_q, cu_seq_k))
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
    scale: float | None = None,
    window_size: Sequence[int] = (-1, -1),
    stage: str = AUTO,
    arch: str = "",
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes d_query (total_q, H, d), d_key and d_value (total_k, Hkv, d) from d_o (total_q, H, d) and
    d_lse (H, total_q), which may be None. Raises as :func:`ladder.call.gradients.run`.
    """
    gradients.check_outputs(query, o, lse, d_o, d_lse, (query.shape[1], query.shape[0]))
    marks = (cu_seq_q, cu_seq_k)
    left, right = window_size
    problem = problem_of_sequences(query, key, value, *marks, scale, True, (left, right))
    wanted = BackwardProblem(**{**asdict(problem), "lse_gradient": d_lse is not None})
    inputs = gradients.gradient_inputs(query, key, value, None, o, lse, d_o, d_lse, *marks)
    run = gradients.prepare_gradients(wanted, inputs, Choice(stage, arch, deterministic=deterministic))
    d_query, d_key, d_value = run(*inputs)
    return d_query, d_key, d_value


def _operator() -> Any:
    made = torch.library.custom_op(
        "ladder::varlen_attention",
        _run,
        mutates_args=(),
        schema="(Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, Tensor cu_seq_k, int max_q, "
        "int max_k, float? scale=None, int[] window_size=[-1, -1], bool enable_gqa=False, "
        "str stage='auto', str arch='', str options='', str backward='auto', bool deterministic=False) "
        "-> (Tensor o, Tensor lse)",
    )

    @made.register_fake
    def _(query: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        lse = query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)
        return query.new_empty(query.shape), lse

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:5], *output)
        _, _, ctx.scale, ctx.window, _, _, arch, _, backward, deterministic = inputs[5:]
        ctx.choices = (backward, arch, deterministic)

    def backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
        found = varlen_backward_operator(
            d_o, d_lse.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.window, *ctx.choices
        )
        return *found, *[None] * 12

    made.register_autograd(backward, setup_context=save)
    return made


def _backward_operator() -> Any:
    made = torch.library.custom_op(
        "ladder::varlen_attention_backward",
        _run_backward,
        mutates_args=(),
        schema="(Tensor d_o, Tensor? d_lse, Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, "
        "Tensor cu_seq_k, Tensor o, Tensor lse, float? scale=None, int[] window_size=[-1, -1], "
        "str stage='auto', str arch='', bool deterministic=False) "
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
