"""A layer norm times a gate, differentiable, computed by the kernels of examples/."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ladder.call.kept import Kept, kind_of
from ladder.call.runs import Choice, Run, prepare
from ladder.call.transforms import autocast, is_batched, needs_operator
from ladder.errors import UnsupportedProblem
from ladder.operations import NormGateBackwardProblem, norm_gate_problem_of_tensors

_INPUTS = ("x", "gate", "weight", "bias")
#: The runs of both passes, by the kind of their inputs.
_runs: Kept[Run] = Kept(4096)

#: The most bytes that the kernels load at once.
_ALIGNMENT = 16

#: Of x, gate, weight and bias.
Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def norm_gate(x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, *, arch: str | None = None) -> Tensor:
    """The layer norm of each row of x (R, C), times a gate (R, C): the step after attention in HSTU.

    Returns y (R, C) = ((x - mean) / sqrt(variance + 1e-6) * weight + bias) * gate, with the mean and the
    variance of each row. x, gate and y are float16 or bfloat16, weight (C) and bias (C) float32. C is a
    multiple of 64, at most 2,048. Tensors that are not contiguous, or do not
    begin at a multiple of 16 bytes, are copied first. Under autocast, x and
    gate are converted to its dtype.

    One kernel computes y, and two compute the gradients of all four tensors, from these alone. The result is
    differentiable once. The gradients of weight and bias are sums in a fixed order, so two runs give the same
    bits. CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU.

    Raises :class:`InvalidProblem` for tensors that do not go together, and :class:`UnsupportedProblem` for
    other dtypes of x or numbers of columns.

    >>> x, gate = (torch.randn(5, 64, dtype=torch.float16) for _ in range(2))
    >>> ladder.norm_gate(x, gate, torch.ones(64), torch.zeros(64)).shape
    torch.Size([5, 64])
    """
    is_compiling = torch.compiler.is_compiling()
    if is_compiling or torch._C._is_any_autocast_enabled():
        x, gate = autocast(x, gate)
    tensors = (x, gate, weight, bias)
    # While torch.compile traces, only call the operator; it checks its arguments when it runs.
    if is_compiling or needs_operator(x, gate, weight, bias, names=_INPUTS[:3]):
        compiled: Tensor = norm_gate_operator(*tensors, arch or "")
        return compiled
    if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in tensors):
        y: Tensor = _NormGate.apply(*tensors, arch or "")
        return y
    return _run(*tensors, arch or "")


def _run(x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, arch: str) -> Tensor:
    inputs = (x, gate, weight, bias)
    [y] = _prepared(inputs, arch)(*map(_aligned, inputs))
    return y


def _run_backward(d_y: Tensor, x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, arch: str) -> Gradients:
    inputs = (x, gate, weight, bias, d_y)
    dx, d_gate, d_weight, d_bias = _prepared(inputs, arch)(*map(_aligned, inputs))
    return dx, d_gate, d_weight, d_bias


def _aligned(tensor: Tensor) -> Tensor:
    """A copy of a tensor that the kernels cannot load 16 bytes of at once, such as a part of a vector of all
    parameters; others as they are.
    """
    try:
        return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()
    except RuntimeError:  # torch's zero tensor, whose memory the run makes
        return tensor


def _prepared(inputs: Sequence[Tensor], arch: str) -> Run:
    """The run of inputs like these, which is checked, chosen and built only once; that of the gradients if
    d_y is among them.
    """
    kind = kind_of(inputs, arch)
    run = _runs.get(kind)
    if run is None:
        problem = norm_gate_problem_of_tensors(*inputs[: len(_INPUTS)])
        named = dict(zip((*_INPUTS, "d_y"), inputs, strict=False))
        if "d_y" in named:
            problem = NormGateBackwardProblem(**asdict(problem))
        run = prepare(problem, named, inputs[0].device, Choice(problem.operation, arch))
        _runs.keep(kind, run)
    return run


class _NormGate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, arch: str) -> Tensor:
        ctx.arch = arch
        ctx.save_for_backward(x, gate, weight, bias)
        return _run(x, gate, weight, bias, arch)

    @staticmethod
    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return _once_differentiated(ctx, d_y, *ctx.saved_tensors)
        return _gradients(ctx, d_y)


def _gradients(ctx: Any, d_y: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    if is_batched(d_y):
        raise UnsupportedProblem(
            "ladder.norm_gate computes one gradient at a time; is_grads_batched=True asks for several",
            "Call torch.autograd.grad for each.",
        )
    x, gate, weight, bias = ctx.saved_tensors
    return *_run_backward(d_y, x, gate, weight, bias, ctx.arch), None


#: The gradients under create_graph=True; differentiating them raises. The saved tensors are arguments because
#: torch refuses only if an argument requires a gradient, and d_y may be a constant.
_once_differentiated = once_differentiable(_gradients)

_SCHEMA = "Tensor x, Tensor gate, Tensor weight, Tensor bias, str arch"


def _operator() -> Any:
    made = torch.library.custom_op(
        "ladder::norm_gate", _run, mutates_args=(), schema=f"({_SCHEMA}) -> Tensor"
    )

    @made.register_fake
    def _(x: Tensor, *_: Any) -> Tensor:
        return x.new_empty(x.shape)

    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        del output
        *tensors, ctx.arch = inputs
        ctx.save_for_backward(*tensors)

    def backward(ctx: Any, d_y: Tensor) -> tuple[Tensor | None, ...]:
        return *norm_gate_backward_operator(d_y, *ctx.saved_tensors, ctx.arch), None

    made.register_autograd(backward, setup_context=save)
    return made


def _backward_operator() -> Any:
    made = torch.library.custom_op(
        "ladder::norm_gate_backward",
        _run_backward,
        mutates_args=(),
        schema=f"(Tensor d_y, {_SCHEMA}) -> (Tensor dx, Tensor d_gate, Tensor d_weight, Tensor d_bias)",
    )

    @made.register_fake
    def _(d_y: Tensor, x: Tensor, gate: Tensor, weight: Tensor, bias: Tensor, arch: str) -> Gradients:
        del d_y, arch
        dx, d_gate, d_weight, d_bias = (one.new_empty(one.shape) for one in (x, gate, weight, bias))
        return dx, d_gate, d_weight, d_bias

    made.register_autograd(_no_second_gradient)
    return made


def _no_second_gradient(*_: Any) -> Any:
    raise UnsupportedProblem(
        "the ladder has first gradients only; there is no gradient through those of ladder.norm_gate",
        "Leave out create_graph=True.",
    )


#: ``torch.ops.ladder.norm_gate`` and ``torch.ops.ladder.norm_gate_backward``.
norm_gate_operator, norm_gate_backward_operator = _operator(), _backward_operator()
