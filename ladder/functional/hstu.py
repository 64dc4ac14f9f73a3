"""Differentiable HSTU attention over jagged batches, computed by a rung."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.functional.kept import Kept, Kind, kind_of, strides_of
from ladder.functional.runs import AUTO, Choice, Run, option_words, prepare, require_backward
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

    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. ``stage`` names
    the rung, ``options`` are its options, and ``backward`` names the rung that computes the gradients;
    "auto" is the highest that takes the problem there. The result is differentiable once, with respect to
    query, key, value and rab. With ``deterministic``, a deterministic rung computes these gradients: they are
    bitwise identical in every run.

    Raises :class:`InvalidProblem` for mismatched tensors, and :class:`UnsupportedProblem` if the stage does
    not take the problem, or if a tensor requires a gradient that no stage computes.
    """
    if pages is not None and not isinstance(pages, HstuPages):
        raise InvalidProblem(f"pages are a {type(pages).__name__}; they must be ladder.HstuPages")
    check_window(window)
    integers = (cu_seqlens_q, cu_seqlens_k, num_contexts, num_targets, intervals, *(pages or ())[1:])
    differentiable = torch.is_grad_enabled() and any(
        getattr(x, "requires_grad", False) for x in (query, key, value, rab)
    )
    given = (target_group_size, tuple(window), alpha, scaling_seqlen)
    words = option_words(options) if options else ""
    choices = (stage, arch or "", words, backward, deterministic, differentiable)
    cache = None if pages is None else pages.kv_cache
    kind = _kind((query, key, value, rab, cache), integers, (*given, *choices))
    call = _calls.get(kind)
    if call is None:
        problem, offsets_k = hstu_problem_of_tensors(
            *(query, key, value, cu_seqlens_q, cu_seqlens_k),
            rab=rab,
            num_contexts=num_contexts,
            num_targets=num_targets,
            intervals=intervals,
            pages=pages,
            target_group_size=target_group_size,
            window=tuple(window),
            alpha=alpha,
            scaling_seqlen=scaling_seqlen,
        )
        forward = Choice(stage, arch or "", tuple(parse_options(words).items()))
        if differentiable:
            _require_gradients(problem, backward, deterministic)
        gradients = Choice(backward, arch or "", deterministic=deterministic)
        marks = (cu_seqlens_q, offsets_k, num_contexts, num_targets, intervals)
        others = dict(zip(_INTEGERS, (*marks, *(pages or (None,) * len(HstuPages._fields))[1:]), strict=True))
        call = _Call(problem, forward, gradients, others, integers)
        _calls.keep(kind, call)
    bias = None if rab is None else padded_bias(rab)
    if differentiable:
        o: Tensor = _HstuAttention.apply(call, query, key, value, bias, cache)
        return o
    return call.forward(query, key, value, bias, cache)


_CACHE, *_OF_PAGES = HstuPages._fields
#: The inputs that differ from call to call of a kind, and those that are the same.
_TENSORS = ("q", "k", "v", "rab", _CACHE)
_INTEGERS = ("cu_seqlens_q", "cu_seqlens_k", "num_contexts", "num_targets", "intervals", *_OF_PAGES)


def _kind(
    tensors: Sequence[Tensor | None], integers: Sequence[Tensor | None], choices: tuple[Any, ...]
) -> Kind:
    """The kind of a call, with the int32 tensors by identity and version: these need not be read again."""
    try:
        marks = [None if x is None else (id(x), x._version) for x in integers]
        # A row's alignment is that of its tensor's address.
        aligned = [x is None or x.data_ptr() % 16 == 0 for x in tensors[:3]]
    except (AttributeError, RuntimeError):
        return ()  # something is no tensor, or has no version
    return kind_of(tensors, *marks, *aligned, *choices)


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
        inputs = (*saved, d_o.contiguous(), *(() if of_bias else (None,)))
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
            return _once_differentiated(ctx, d_o)
        return _gradients(ctx, d_o)


def _gradients(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
    found = ctx.call.gradients(ctx.saved_tensors, d_o, of_bias=ctx.needs_input_grad[4])
    return None, *found, None


#: The same where a second gradient may be wanted, which it refuses.
_once_differentiated = once_differentiable(_gradients)


def _differentiated(problem: HstuProblem, *, bias_gradient: bool = True) -> HstuBackwardProblem:
    """The backward problem of a forward problem."""
    return HstuBackwardProblem(**asdict(problem), bias_gradient=bias_gradient)
