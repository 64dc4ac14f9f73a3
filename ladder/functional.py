"""Attention by a rung of the ladder, called as torch's own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ladder import operators
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.inputs import TORCH_DTYPES
from ladder.problem import Problem
from ladder.stages import format_options


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    stage: str | None = None,
    arch: str | None = None,
    options: Mapping[str, str] | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: query (B, H, N, d), key and value (B, Hkv, M, d) -> (o, lse).

    o (B, H, N, d) has query's dtype; lse (B, H, N), log(sum(exp(scaled logits))) of each row, is fp32.
    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. The arguments are
    those of ``torch.nn.functional.scaled_dot_product_attention``; H may be a multiple of Hkv with
    ``enable_gqa``. ``stage`` names the rung; by default it is the highest that takes the problem.

    Raises :class:`InvalidProblem` for tensors that do not match and :class:`UnsupportedProblem` for a problem
    that the stage does not take.
    """
    # While torch.compile traces, the operator alone is called; it checks when it runs.
    if not torch.compiler.is_compiling():
        problem_of(query, key, value, is_causal, scale, enable_gqa)
    outputs: tuple[Tensor, Tensor] = operators.attention(
        query,
        key,
        value,
        is_causal,
        scale,
        enable_gqa,
        stage or "",
        arch or "",
        format_options(options or {}),
    )
    return outputs


def problem_of(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Problem:
    """The problem of these tensors. Raises :class:`InvalidProblem` and :class:`UnsupportedProblem`."""
    named = (("query", q), ("key", k), ("value", v))
    dtypes = {dtype: name for name, dtype in TORCH_DTYPES.items()}
    for name, tensor in named:
        if not isinstance(tensor, Tensor):
            raise InvalidProblem(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
        if tensor.dim() != 4:
            raise InvalidProblem(
                f"{name} has {tensor.dim()} dimensions; it must have 4: (batch, heads, sequence, head_dim)"
            )
        if tensor.device.type not in ("cpu", "cuda"):
            raise InvalidProblem(f"{name} is on {tensor.device}; it must be on the CPU or a CUDA GPU")
        if tensor.device != q.device:
            raise InvalidProblem(
                f"{name} is on {tensor.device} and query on {q.device}; all must be on one device"
            )
        if tensor.dtype not in dtypes:
            known = ", ".join(str(dtype) for dtype in dtypes)
            raise UnsupportedProblem(f"{name} is {tensor.dtype}; it must be one of {known}")
        if tensor.dtype != q.dtype:
            raise InvalidProblem(f"{name} is {tensor.dtype} and query {q.dtype}; all must have one dtype")
        if not tensor.is_contiguous():
            raise InvalidProblem(f"{name} is not contiguous", f"Pass {name}.contiguous().")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise UnsupportedProblem(
                f"{name} requires a gradient, and the ladder has forward passes only",
                "Call it under torch.no_grad(), or pass detached tensors.",
            )
    if k.shape != v.shape:
        raise InvalidProblem(
            f"key is {tuple(k.shape)} and value {tuple(v.shape)}; they must have the same shape"
        )
    for axis, name in ((0, "batch"), (3, "head_dim")):
        if k.shape[axis] != q.shape[axis]:
            raise InvalidProblem(
                f"key has {name} {k.shape[axis]} and query {q.shape[axis]}; they must be equal"
            )
    if k.shape[1] != q.shape[1] and not enable_gqa:
        raise InvalidProblem(
            f"query has {q.shape[1]} heads and key {k.shape[1]}",
            "With enable_gqa=True query's heads may be a multiple of key's.",
        )
    batch, heads, q_len, head_dim = q.shape
    return Problem(
        batch,
        heads,
        q_len,
        k.shape[2],
        head_dim,
        kv_heads=k.shape[1],
        dtype=dtypes[q.dtype],
        is_causal=is_causal,
        scale=scale,
    )
