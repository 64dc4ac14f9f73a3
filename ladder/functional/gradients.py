"""Gradients of attention computed by a backward rung: ``torch.ops.ladder.attention_backward``.

All backward rungs need only q, k, v, o and lse, so the two rungs are chosen independently; by default, the
backward one is the highest that takes the problem.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.functional.kept import Kept, kind_of
from ladder.functional.runs import AUTO, Choice, Run, prepare
from ladder.operations import BackwardProblem, problem_of_tensors

_SCHEMA = (
    "(Tensor d_o, Tensor? d_lse, Tensor query, Tensor key, Tensor value, Tensor o, Tensor lse, "
    "bool is_causal=False, float? scale=None, str stage='auto', str arch='', bool deterministic=False) "
    "-> (Tensor d_query, Tensor d_key, Tensor d_value)"
)
_runs: Kept[Run] = Kept(4096)


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
    deterministic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes d_query (B, H, N, d), d_key and d_value (B, Hkv, M, d) from d_o (B, H, N, d) and d_lse (B, H,
    N), which may be None. With ``deterministic``, only a deterministic stage.

    Raises :class:`InvalidProblem` for tensors that do not match the forward pass's, and
    :class:`UnsupportedProblem` if the stage does not take the problem.
    """
    inputs = {"q": query, "k": key, "v": value, "o": o, "lse": lse, "d_o": d_o, "d_lse": d_lse}
    kind = kind_of((query, key, value, o, lse, d_o, d_lse), is_causal, scale, stage, arch, deterministic)
    known = _runs.get(kind)
    if known is None:
        problem = problem_of_tensors(query, key, value, is_causal, scale, enable_gqa=True)
        for name, tensor in (("o", o), ("d_o", d_o)):
            _check(name, tensor, query, query.shape, query.dtype)
        for name, vector in (("lse", lse), ("d_lse", d_lse)):
            if vector is not None:
                _check(name, vector, query, query.shape[:3], torch.float32)
        wanted = BackwardProblem(**{**asdict(problem), "lse_gradient": d_lse is not None})
        choice = Choice(stage, arch, deterministic=deterministic)
        known = prepare(wanted, inputs, query.device, choice)
        _runs.keep(kind, known)
    d_query, d_key, d_value = known(inputs)
    return d_query, d_key, d_value


def _check(name: str, tensor: Tensor, query: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
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
    d_o: Tensor, d_lse: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Tensor]:
    del d_o, d_lse
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


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


def of_outputs(
    d_o: Tensor | None, d_lse: Tensor | None, saved: tuple[Tensor, ...], *choices: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients from those of the outputs, None for one that has none; ``saved`` are query, key, value, o
    and lse, ``choices`` the arguments after lse of :func:`run`.

    Where a second gradient may be wanted it is the operator's, which refuses it.
    """
    d_o = torch.zeros_like(saved[3]) if d_o is None else d_o
    d_lse = None if d_lse is None else d_lse.contiguous()
    function: Any = attention_backward if torch.is_grad_enabled() or torch.compiler.is_compiling() else run
    gradients: tuple[Tensor, Tensor, Tensor] = function(d_o, d_lse, *saved, *choices)
    return gradients
