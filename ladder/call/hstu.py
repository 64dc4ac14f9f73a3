"""Differentiable HSTU attention over jagged batches, computed by a rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.call import flops
from ladder.call.gradients import no_second_gradient
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
from ladder.call.transforms import autocast, is_batched, must_be_deterministic, needs_operator
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import (
    AnyProblem,
    HstuBackwardProblem,
    HstuPages,
    HstuProblem,
    check_window,
    hstu_problem_of_tensors,
    padded_bias,
)
from ladder.stages import parse_options


def hstu_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor | None = None,
    *,
    rab: Tensor | None = None,
    num_contexts: Tensor | None = None,
    num_targets: Tensor | None = None,
    target_group_size: int = 1,
    window: tuple[int, int] = (-1, 0),
    intervals: Tensor | None = None,
    pages: HstuPages | None = None,
    alpha: float | None = None,
    scaling_seqlen: int | None = None,
    deterministic: bool = False,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
    backward: str = AUTO,
) -> Tensor:
    """HSTU attention: query (total_q, H, d), key and value (total_k, H, d) -> o (total_q, H, d).

    Sequence b has the tokens ``cu_seqlens_q[b]`` to ``cu_seqlens_q[b + 1] - 1`` of query and, likewise, those
    given by ``cu_seqlens_k`` of key and value. By default these are the same; there may be more keys than
    queries, which are then the sequence's last tokens. The heads of a token must be contiguous; tokens may be
    strided, like slices of a wider row.

    ``rab`` (B, 1 or H, N, N), with N the largest number of keys in a sequence, is added to the logits, which
    are multiplied by ``alpha``, 1 / sqrt(d) by default; o is divided by ``scaling_seqlen``, by default the
    largest number of queries in a sequence. The mask is that of :func:`ladder.hstu_mask`: ``num_contexts``
    and ``num_targets`` (B), ``target_group_size``, ``window``, ``intervals`` (an odd number of bounds,
    total_q). With ``pages``, the keys and values of each history are in a cache; key and value then have
    query's tokens, of which only the targets' are read. Integer tensors are int32; reading them synchronises
    with the GPU, which happens once for tensors that are passed again and that torch has not changed since.
    Under autocast, query, key, value and rab are converted to its dtype; a cache must have it already.

    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. ``stage`` names
    the rung, ``options`` are its options, and ``backward`` names the rung that computes the gradients;
    "auto" is the highest that takes the problem there. The result is differentiable once, with respect to
    query, key, value and rab. With ``deterministic``, or ``torch.use_deterministic_algorithms(True)``, a
    deterministic rung computes these gradients: they are bitwise identical in every run.

    Raises :class:`InvalidProblem` for mismatched tensors, and :class:`UnsupportedProblem` if the stage does
    not take the problem, or if a tensor requires a gradient that no stage computes.

    >>> query, key, value = (torch.randn(150, 2, 64, dtype=torch.float16) for _ in range(3))
    >>> offsets = torch.tensor([0, 100, 150], dtype=torch.int32)
    >>> ladder.hstu_attention(query, key, value, offsets).shape
    torch.Size([150, 2, 64])
    """
    if pages is not None and not isinstance(pages, HstuPages):
        raise InvalidProblem(f"pages are a {type(pages).__name__}; they must be ladder.HstuPages")
    check_window(window)
    is_compiling = torch.compiler.is_compiling()
    if is_compiling or torch._C._is_any_autocast_enabled():
        query, key, value = autocast(query, key, value)
        rab = None if rab is None else autocast(rab)[0]
    tensors = (query, key, value, cu_seqlens_q, cu_seqlens_k, rab, num_contexts, num_targets, intervals)
    all_tensors = (*tensors, *(pages or (None,) * len(HstuPages._fields)))
    given = (target_group_size, tuple(window), alpha, scaling_seqlen)
    differentiable = torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) for x in (query, key, value, rab)
    )
    if differentiable and torch.are_deterministic_algorithms_enabled():
        deterministic = must_be_deterministic(deterministic)
    choices = (stage, arch or "", option_words(options) if options else "", backward, deterministic)
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    if is_compiling or needs_operator(query, key, value, rab):
        compiled: Tensor = hstu_operator(*all_tensors, *given, *choices)
        return compiled
    kind = _kind(all_tensors, (*given, *choices, differentiable))
    call = _calls.get(kind) or _new_call(kind, all_tensors, given, choices, differentiable)
    bias = None if rab is None else padded_bias(rab)
    cache = None if pages is None else pages.kv_cache
    if differentiable:
        o: Tensor = _HstuAttention.apply(call, query, key, value, bias, cache)
        return o
    return call.forward(query, key, value, bias, cache)


def _new_call(
    kind: Kind, tensors: Sequence[Any], given: tuple[Any, ...], choices: tuple[Any, ...], differentiable: bool
) -> _Call:
    """What calls of this kind share; ``tensors`` are those of the operator, in its order."""
    query, key, value, offsets_q, offsets_k, rab, contexts, targets, intervals, *paged = tensors
    group, window, alpha, scaling_seqlen = given
    stage, arch, words, backward, deterministic = choices
    problem, keys = hstu_problem_of_tensors(
        *(query, key, value, offsets_q, offsets_k),
        rab=rab,
        num_contexts=contexts,
        num_targets=targets,
        intervals=intervals,
        pages=None if paged[0] is None else HstuPages(*paged),
        target_group_size=group,
        window=window,
        alpha=alpha,
        scaling_seqlen=scaling_seqlen,
    )
    forward = Choice(stage, arch, tuple(parse_options(words).items()))
    if differentiable:
        _require_gradients(problem, backward, deterministic)
    gradients = Choice(backward, arch, deterministic=deterministic)
    marks = (offsets_q, keys, contexts, targets, intervals, *paged[1:])
    others = dict(zip(_INTEGERS, marks, strict=True))
    call = _Call(problem, forward, gradients, others, _integers(tensors))
    _calls.keep(kind, call)
    return call


_CACHE, *_OF_PAGES = HstuPages._fields
#: The inputs that differ from call to call of a kind, and those that are the same.
_TENSORS = ("q", "k", "v", "rab", _CACHE)
_INTEGERS = ("cu_seqlens_q", "cu_seqlens_k", "num_contexts", "num_targets", "intervals", *_OF_PAGES)


def _integers(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """The int32 tensors of the operator's."""
    return (*tensors[3:5], *tensors[6:9], *tensors[10:])


def _kind(tensors: Sequence[Any], choices: tuple[Any, ...]) -> Kind:
    """The kind of a call, with the int32 tensors by identity and version: these need not be read again."""
    query, key, value, offsets_q, offsets_k, rab, contexts, targets, intervals, cache, *paged = tensors
    try:
        integers = (offsets_q, offsets_k, contexts, targets, intervals, *paged)
        marks = [None if x is None else (id(x), x._version) for x in integers]
        # A row's alignment is that of its tensor's address.
        aligned = [x is None or x.data_ptr() % 16 == 0 for x in (query, key, value)]
    except (AttributeError, RuntimeError):
        return ()  # something is no tensor, or has no version
    return kind_of((query, key, value, rab, cache), *marks, *aligned, *choices)


def _require_gradients(problem: HstuProblem, stage: str, deterministic: bool) -> None:
    """Raises :class:`UnsupportedProblem` if the stage does not compute the problem's gradients."""
    if problem.page_size:
        raise UnsupportedProblem(
            "a tensor requires a gradient, and keys in pages have none",
            "Call it under torch.no_grad(), or pass detached tensors.",
        )
    require_backward(_differentiated(problem), stage, deterministic)


class _Call:
    """The problem of a call, with all that it needs besides its tensors: made once for its kind.

    All backward rungs need only the forward pass's inputs, so the two rungs are chosen independently. It
    keeps the ``integers``, so that no other tensor can have their identity.
    """

    __slots__ = ("_forward", "_gradients", "_names", "backward", "integers", "others", "problem", "stage")

    def __init__(
        self,
        problem: HstuProblem,
        stage: Choice,
        backward: Choice,
        others: Mapping[str, Tensor | None],
        integers: Sequence[Tensor | None],
    ) -> None:
        self.problem, self.stage, self.backward, self.integers = problem, stage, backward, integers
        self._names, self.others = (*_TENSORS, *others), (*others.values(),)
        self._forward: Run | None = None
        self._gradients: dict[Any, Run] = {}  # by strides, and by whether there is one of rab

    def forward(self, *tensors: Tensor | None) -> Tensor:
        inputs = (*tensors, *self.others)
        if self._forward is None:
            self._forward = self._prepared(self.problem, inputs, self.stage)
        [o] = self._forward(*inputs)
        return o

    def gradients(
        self, saved: Sequence[Tensor | None], d_o: Tensor, *, of_bias: bool
    ) -> tuple[Tensor | None, ...]:
        """The gradients of q, k, v and, if wanted, of rab; ``saved`` are the forward pass's tensors and
        ``others``.
        """
        # Without a gradient of rab, d_rab is no output but an input that is missing.
        inputs = (*saved, d_o.resolve_neg().contiguous(), *(() if of_bias else (None,)))
        kind = (of_bias, strides_of(saved))
        run = self._gradients.get(kind)
        if run is None:
            wanted = _differentiated(self.problem, bias_gradient=of_bias)
            run = self._gradients[kind] = self._prepared(wanted, inputs, self.backward)
        d_q, d_k, d_v, *d_rab = run(*inputs)
        return d_q, d_k, d_v, d_rab[0].to(d_o.dtype) if d_rab else None

    def _prepared(self, problem: AnyProblem, inputs: Sequence[Any], choice: Choice) -> Run:
        named = dict(zip((*self._names, "d_o", "d_rab"), inputs, strict=False))
        return prepare(problem, named, inputs[0].device, choice)


#: Each keeps its int32 tensors.
_calls: Kept[_Call] = Kept(64)


class _HstuAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor | None) -> Tensor:
        ctx.call = call
        # The call's integers, too: torch then refuses gradients of offsets that have changed since.
        ctx.save_for_backward(*tensors, *call.others)
        return call.forward(*tensors)

    @staticmethod
    def backward(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return _once_differentiated(ctx, d_o, *ctx.saved_tensors)
        return _gradients(ctx, d_o)


def _gradients(ctx: Any, d_o: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if is_batched(d_o):
        raise UnsupportedProblem(
            "ladder.hstu_attention computes one gradient at a time; is_grads_batched=True asks for several",
            "Call torch.autograd.grad for each.",
        )
    found = ctx.call.gradients(ctx.saved_tensors, d_o, of_bias=ctx.needs_input_grad[4])
    return None, *found, None


#: The gradients under create_graph=True; differentiating them raises. The saved tensors are arguments because
#: torch refuses only if an argument requires a gradient, and d_o may be a constant.
_once_differentiated = once_differentiable(_gradients)


def _differentiated(problem: HstuProblem, *, bias_gradient: bool = True) -> HstuBackwardProblem:
    """The backward problem of a forward problem."""
    return HstuBackwardProblem(**asdict(problem), bias_gradient=bias_gradient)


_TENSORS_OF_OPERATOR = (
    "Tensor query, Tensor key, Tensor value, Tensor cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? rab, "
    "Tensor? num_contexts, Tensor? num_targets, Tensor? intervals, "
    + ", ".join(f"Tensor? {name}" for name in HstuPages._fields)
)
_TENSOR_COUNT = 9 + len(HstuPages._fields)
# Without defaults: an operator leaves out arguments that are theirs.
_MASK = "int target_group_size, int[] window, float? alpha, int? scaling_seqlen"


def _run(*arguments: Any) -> Tensor:
    """:func:`hstu_attention` with argument types that operators support.

    ``options`` is ``NAME=VALUE,...``. ``backward`` and ``deterministic`` are used only by autograd.
    """
    tensors, given, choices = _parts(arguments)
    _, _, _, backward, _ = choices
    require_backward_name(backward)
    query, key, value, _, _, rab, *_, cache, _, _, _ = tensors
    bias = None if rab is None else padded_bias(rab)
    return _call_of(tensors, given, choices, differentiable=False).forward(query, key, value, bias, cache)


def _run_backward(d_o: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of query, key, value and rab; the last is empty unless there is one ``of_bias``."""
    tensors, given, (stage, arch, deterministic, of_bias) = _parts(arguments)
    query, key, value, _, _, rab, *_, cache, _, _, _ = tensors
    call = _call_of(tensors, given, (AUTO, arch, "", stage, deterministic), differentiable=True)
    bias = None if rab is None else padded_bias(rab)
    saved = (query, key, value, bias, cache, *call.others)
    d_query, d_key, d_value, d_bias = call.gradients(saved, d_o, of_bias=of_bias)
    assert d_query is not None and d_key is not None and d_value is not None
    if d_bias is None:
        return d_query, d_key, d_value, query.new_empty(0)
    return d_query, d_key, d_value, d_bias[..., : rab.shape[-1]].contiguous()


def _call_of(
    tensors: Sequence[Any], given: tuple[Any, ...], choices: tuple[Any, ...], *, differentiable: bool
) -> _Call:
    kind = _kind(tensors, (*given, *choices, differentiable))
    return _calls.get(kind) or _new_call(kind, tensors, given, choices, differentiable)


def _parts(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """An operator's tensors, what is :data:`_MASK`, and its choices."""
    tensors, others = arguments[:_TENSOR_COUNT], arguments[_TENSOR_COUNT:]
    group, window, *scales = others[:4]
    return tensors, (group, tuple(window), *scales), others[4:]


def _operator() -> Any:
    made = torch.library.custom_op(
        "ladder::hstu_attention",
        _run,
        mutates_args=(),
        schema=f"({_TENSORS_OF_OPERATOR}, {_MASK}, str stage, str arch, str options, str backward, "
        "bool deterministic) -> Tensor",
    )

    @made.register_fake
    def _(query: Tensor, *_: Any) -> Tensor:
        return query.new_empty(query.shape)

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        tensors, given, (_, arch, _, backward, deterministic) = _parts(inputs)
        ctx.save_for_backward(*tensors)
        ctx.others, ctx.count = (*given, backward, arch, deterministic), len(inputs)

    def backward(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
        of_bias = ctx.needs_input_grad[5]
        *found, d_rab = hstu_backward_operator(d_o, *ctx.saved_tensors, *ctx.others, of_bias)
        return *found, None, None, d_rab if of_bias else None, *[None] * (ctx.count - 6)

    made.register_autograd(backward, setup_context=save)
    return made


def _backward_operator() -> Any:
    made = torch.library.custom_op(
        "ladder::hstu_attention_backward",
        _run_backward,
        mutates_args=(),
        schema=f"(Tensor d_o, {_TENSORS_OF_OPERATOR}, {_MASK}, str stage, str arch, bool deterministic, "
        "bool of_bias) "
        "-> (Tensor d_query, Tensor d_key, Tensor d_value, Tensor d_rab)",
    )

    @made.register_fake
    def _(d_o: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Any:
        rab, of_bias = others[2], others[-1]
        d_rab = rab.new_empty(rab.shape) if of_bias else query.new_empty(0)
        return *(x.new_empty(x.shape) for x in (query, key, value)), d_rab

    made.register_autograd(no_second_gradient)
    return made


#: ``torch.ops.ladder.hstu_attention`` and ``torch.ops.ladder.hstu_attention_backward``.
hstu_operator, hstu_backward_operator = _operator(), _backward_operator()
flops.counts_sequences(torch.ops.ladder.hstu_attention, flops.pairs_of_offsets)
flops.counts_sequences(torch.ops.ladder.hstu_attention_backward, flops.pairs_of_offsets, first=1)
