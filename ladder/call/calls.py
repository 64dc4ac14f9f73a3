"""Attention computed by a rung, called like torch's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ladder.call import gradients, native, operators, sharding
from ladder.call.arguments import Choices
from ladder.call.forward import inputs_of, prepared
from ladder.call.mask_parts import attend_parts, parts_of_attn_mask
from ladder.call.runs import AUTO, Run, option_words
from ladder.call.shapes import is_usual, of_other_shapes
from ladder.call.transforms import autocast, must_be_deterministic, needs_operator
from ladder.errors import InvalidProblem, UnsupportedProblem


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
    stage: str = AUTO,
    arch: str | None = None,
    options: Mapping[str, Any] | None = None,
    backward: str = AUTO,
    deterministic: bool = False,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: query (B, H, N, d), key and value (B, Hkv, M, d) -> (o, lse).

    o (B, H, N, d) has query's dtype; lse (B, H, N), log(sum(exp(scaled logits))) of each row, is fp32.
    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. The arguments
    up to ``enable_gqa`` are those of ``torch.nn.functional.scaled_dot_product_attention``; no rung computes
    a dropout. H may be a multiple of Hkv with ``enable_gqa``. Under autocast, the tensors
    are converted as for torch's attention. d is 32, 64, 128 or 256, or on Hopper any multiple of 8 up to 256
    except 192, without gradients. With d = 192, as in MLA, value and o have 128, and there are no gradients.

    ``window_size`` (left, right) is a mask as in FlashAttention, aligned to the lower right: query i is at
    the position of key i + M - N, and sees that one, ``left`` keys before it and ``right`` keys after it. -1
    has no limit: (-1, 0) is causal, (0, 0) lets a query see one key. It replaces ``is_causal``, which is
    aligned to the upper left. A row that sees no key has o = 0, lse = -inf (with sinks its sink) and
    gradients of 0.

    An ``attn_mask``, broadcast to (B, H, N, M), is bool or has floats 0 and -inf. It is computed in parts, by
    a launch each, if the keys that a query sees are one range: padding, causal masks and windows at any
    offset, packed sequences. The call reads the mask, and waits for the GPU.

    With a ``softcap`` c the logits are c tanh(s / c) of scaled logits s, as in Gemma 2. ``sinks`` (H) are
    finite numbers: exp(sink of the head) is added to each row's sum of weights, and lse contains it, as in
    gpt-oss.

    ``stage`` names the rung; "auto" is the highest that takes the problem on this GPU, or as ``arch``, and
    with few work items the one that a model chooses. That is usually the fastest, but not always:
    docs/python.md says where not. A rung is chosen and built once per
    process; a new process notices changed sources.

    As in torch, tensors may have any number of dimensions, of which those before the last two are broadcast,
    and may be empty; queries without a key have o = 0 and lse = -inf.

    Tensors may have strides. Rungs with TMA take them as they lie if rows are contiguous and begin at
    multiples of 16 bytes from each other, and heads at multiples of a row or of 64 elements: slices of a
    fused projection, or ``x.transpose(1, 2)``. Other tensors, and those of other rungs, are copied first. o,
    lse and the gradients are contiguous. Tensors without memory of their own are refused by name, except
    torch's zero tensors, which autograd passes as gradients.

    Both outputs are differentiable once. ``backward`` names the rung that computes the gradients, or is
    "auto". With ``deterministic``, or ``torch.use_deterministic_algorithms(True)``, that rung is a
    deterministic one: gradients are bitwise identical in every run.

    Raises :class:`InvalidProblem` for mismatched tensors, and :class:`UnsupportedProblem` if the stage does
    not take the problem, or if a tensor requires a gradient that no stage computes.

    >>> query, key, value = (torch.randn(1, 2, 100, 64, dtype=torch.float16) for _ in range(3))
    >>> o, lse = ladder.attention(query, key, value, is_causal=True)
    >>> o.shape, lse.shape
    (torch.Size([1, 2, 100, 64]), torch.Size([1, 2, 100]))
    """
    if dropout_p != 0.0:
        raise UnsupportedProblem(
            f"dropout_p is {dropout_p!r}; no rung computes a dropout", "Pass 0.0, as in inference."
        )
    if attn_mask is not None:
        attend = partial(
            attention,
            scale=scale,
            enable_gqa=enable_gqa,
            softcap=softcap,
            stage=stage,
            arch=arch,
            options=options,
            backward=backward,
            deterministic=deterministic,
        )
        _require_only_mask(is_causal, window_size)
        return _attend_masked(attend, query, key, value, attn_mask, sinks)
    window = window_size if isinstance(window_size, tuple) else _pair(window_size)
    words = option_words(options) if options else ""
    choices = Choices(
        *(is_causal, scale, enable_gqa, stage, arch or "", words, backward, deterministic, window, softcap)
    )
    if isinstance(sinks, Tensor) and sinks.dtype in (torch.float16, torch.bfloat16):
        sinks = sinks.float()
    if torch.compiler.is_compiling() or torch._C._is_any_autocast_enabled():
        query, key, value = autocast(query, key, value)
    try:
        return _attend(query, key, value, sinks, choices)
    except InvalidProblem:
        if is_usual(query, key, value, enable_gqa):
            raise
        return _attend_other_shapes(query, key, value, sinks, choices)


def _attend_other_shapes(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, choices: Choices
) -> tuple[Tensor, Tensor]:
    def attend(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> tuple[Tensor, Tensor]:
        return _attend(q, k, v, sinks, choices._replace(enable_gqa=enable_gqa))

    return of_other_shapes(attend, query, key, value, choices.enable_gqa)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, choices: Choices
) -> tuple[Tensor, Tensor]:
    """:func:`attention` of tensors of the usual shapes."""
    is_compiling = torch.compiler.is_compiling()
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    if is_compiling or needs_operator(query, key, value, sinks):
        if not is_usual(query, key, value, choices.enable_gqa):
            return _attend_other_shapes(query, key, value, sinks, choices)
        return _operator(query, key, value, sinks, _deterministic(choices))
    differentiable = torch.is_grad_enabled() and _requires_grad(query, key, value, sinks)
    if differentiable and torch.are_deterministic_algorithms_enabled():
        choices = _deterministic(choices)
    call = (query, key, value, sinks, choices, differentiable)
    if native.calls is not None and (outputs := native.calls.call(*call)) is not None:
        return outputs
    run = prepared(*call)
    if not differentiable:
        o, lse = run(*inputs_of(query, key, value, sinks))
        native.keep(run, None, *call)
        return o, lse
    if run.plan is ...:
        run.plan = _plan(run, choices)
    if run.plan is None:
        return _operator(query, key, value, sinks, choices)
    native.keep(run, run.plan, *call)
    return native.apply(run.plan, *inputs_of(query, key, value, sinks))


def _deterministic(choices: Choices) -> Choices:
    return choices._replace(deterministic=must_be_deterministic(choices.deterministic))


def _requires_grad(query: Any, key: Any, value: Any, sinks: Any) -> bool:
    """Whether one is a tensor that requires a gradient."""
    try:
        return (
            query.requires_grad
            or key.requires_grad
            or value.requires_grad
            or (sinks is not None and sinks.requires_grad)
        )
    except AttributeError:
        return False  # refused with the problem


def _pair(window_size: Any) -> Any:
    """A window as a tuple, which has a hash; what is none is refused with the problem."""
    return tuple(window_size) if isinstance(window_size, list) else window_size


def _require_only_mask(is_causal: Any, window_size: Any) -> None:
    if is_causal or _pair(window_size) != (-1, -1):
        raise InvalidProblem(
            "attn_mask is given with is_causal or window_size", "Leave out one: attn_mask can hold both."
        )


def _attend_masked(
    attend: Callable[..., tuple[Tensor, Tensor]],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    sinks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if torch.compiler.is_compiling() or needs_operator(query, key, value):
        raise UnsupportedProblem(
            "an attn_mask is read before it is computed, which no compiled graph or transform can do",
            "is_causal and window_size need no mask.",
        )
    if not all(isinstance(x, Tensor) and x.dim() == 4 for x in (query, key, value)):
        raise InvalidProblem("with an attn_mask, query, key and value are tensors of 4 dimensions")
    parts, window = parts_of_attn_mask(mask, query, key)
    return attend_parts(attend, parts, query, key, value, window, sinks)


def _operator(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor | None, choices: Choices
) -> tuple[Tensor, Tensor]:
    if not torch.compiler.is_compiling():
        sharding.prepare(query, key, value)
    outputs: tuple[Tensor, Tensor] = operators.attention(query, key, value, *choices, sinks)
    return outputs


def _plan(run: Run, choices: Choices) -> Tensor | None:
    """The plan of a run with its gradients; None where the operator computes them."""

    def prepare(*inputs: Tensor | None) -> Run:
        return gradients.prepared_gradients(inputs, choices)

    def otherwise(d_o: Tensor, d_lse: Tensor | None, saved: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
        query, key, value, sinks, _, _, *outputs = saved
        found = gradients.of_outputs(d_o, d_lse, (query, key, value, *outputs, sinks), choices)
        return found if sinks is not None else found[:3]

    return native.plan_of(run, prepare, otherwise)
