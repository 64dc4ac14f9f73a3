"""Gradients of attention computed by a backward rung: ``torch.ops.ladder.attention_backward``.

Autograd calls it for every operator of a forward rung. All backward rungs need only q, k, v, o and lse, so
the two rungs are chosen independently; by default, the backward one is the highest that takes the problem.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.functional.runs import AUTO, run_stage
from ladder.operations import BackwardProblem, problem_of_tensors

_SCHEMA = (
    "(Tensor d_o, Tensor? d_lse, Tensor query, Tensor key, Tensor value, Tensor o, Tensor lse, "
    "bool is_causal=False, float? scale=None, str stage='auto', str arch='') "
    "-> (Tensor d_query, Tensor d_key, Tensor d_value)"
)


def run(
    d_o: Tensor,
    d_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    o: Tensor,
    lse: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    stage: str = AUTO,
    arch: str = "",
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes d_query (B, H, N, d), d_key and d_value (B, Hkv, M, d) from d_o (B, H, N, d) and d_lse (B, H,
    N), which may be None.

    Raises :class:`InvalidProblem` for tensors that do not match the forward pass's, and
    :class:`UnsupportedProblem` if the stage does not take the problem.
    """
    problem = problem_of_tensors(query, key, value, is_causal, scale, enable_gqa=True)
    for name, tensor in (("o", o), ("d_o", d_o)):
        _check(name, tensor, query, query.shape, query.dtype)
    for name, vector in (("lse", lse), ("d_lse", d_lse)):
        if vector is not None:
            _check(name, vector, query, query.shape[:3], torch.float32)
    wanted = BackwardProblem(**{**asdict(problem), "lse_gradient": d_lse is not None})
    inputs = {"q": query, "k": key, "v": value, "o": o, "lse": lse, "d_o": d_o, "d_lse": d_lse}
    outputs = run_stage(wanted, inputs, query.device, stage=stage, arch=arch)
    return outputs["dq"], outputs["dk"], outputs["dv"]


def _check(name: str, tensor: Tensor, query: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
    if tensor.shape != shape:
        raise InvalidProblem(f"{name} is {tuple(tensor.shape)}; of this query it must be {tuple(shape)}")
    if tensor.dtype != dtype:
        raise InvalidProblem(f"{name} is {tensor.dtype}; it must be {dtype}", f"Pass {name}.to({dtype}).")
    if tensor.device != query.device:
        raise InvalidProblem(
            f"{name} is on {tensor.device} and query on {query.device}; all must be on one device"
        )
    if not tensor.is_contiguous():
        raise InvalidProblem(f"{name} is not contiguous", f"Pass {name}.contiguous().")


def _shapes(
    d_o: Tensor, d_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _no_second_gradient(*_: Any) -> Any:
    raise UnsupportedProblem(
        "the ladder has first gradients only; there is no gradient through ladder.attention_backward",
        "Leave out create_graph=True, or take torch's attention where second gradients are wanted.",
    )


def _operator() -> Any:
    made = torch.library.custom_op("ladder::attention_backward", run, mutates_args=(), schema=_SCHEMA)
    made.register_fake(_shapes)
    made.register_autograd(_no_second_gradient)
    return made


#: ``torch.ops.ladder.attention_backward``.
attention_backward = _operator()


def register(forward: Any, names: Callable[..., dict[str, Any]]) -> None:
    """Registers the gradient of a forward operator. ``names`` turns its arguments into keyword arguments."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        arguments = names(*inputs)
        ctx.save_for_backward(arguments["query"], arguments["key"], arguments["value"], *output)
        ctx.choices = [arguments[name] for name in ("is_causal", "scale", "backward", "arch")]
        ctx.count = len(inputs)

    def backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> tuple[Tensor | None, ...]:
        gradients = attention_backward(d_o.contiguous(), d_lse.contiguous(), *ctx.saved_tensors, *ctx.choices)
        return (*gradients, *[None] * (ctx.count - 3))

    forward.register_autograd(backward, setup_context=keep)
