"""Derives the problem from given tensors, with stricter checks than torch's own attention."""

from __future__ import annotations

import torch
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations.attention.inputs import TORCH_DTYPES
from ladder.operations.attention.problem import Problem


def require_strided(**tensors: Tensor) -> None:
    """Raises :class:`InvalidProblem` for a nested or sparse tensor, which has no strides."""
    for name, tensor in tensors.items():
        if tensor.is_nested:
            raise InvalidProblem(
                f"{name} is a nested tensor; it must be a plain one",
                "ladder.hstu_attention takes sequences of different lengths, one after another.",
            )
        if tensor.layout != torch.strided:
            raise InvalidProblem(f"{name} is {tensor.layout}; it must be dense", f"Pass {name}.to_dense().")


def problem_of_tensors(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Problem:
    """Derives the problem of these tensors.

    Raises :class:`InvalidProblem` and :class:`UnsupportedProblem`.
    """
    named = (("query", q), ("key", k), ("value", v))
    dtypes = {dtype: name for name, dtype in TORCH_DTYPES.items()}
    for name, tensor in named:
        if not isinstance(tensor, Tensor):
            raise InvalidProblem(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
        require_strided(**{name: tensor})
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
    for name, flag in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        if not isinstance(flag, bool):
            raise InvalidProblem(f"{name} is {flag!r}; it must be True or False")
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
