"""Derives the problem from given tensors, with stricter checks than torch's own attention."""

from __future__ import annotations

import torch
from torch import Tensor

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations.addresses import require_memory
from ladder.operations.attention.inputs import TORCH_DTYPES
from ladder.operations.attention.problem import Problem, value_dim
from ladder.operations.hstu.tensors import require_strided, sequence_lengths


def check_tensors(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dimensions: str,
    names: tuple[str, str, str] = ("query", "key", "value"),
    kv_dtype: torch.dtype | None = None,
    *,
    narrow_values: bool = False,
) -> str:
    """Checks that three tensors with these ``names`` go together, each of these ``dimensions``; returns their
    dtype's name. The last two may have a ``kv_dtype`` of their own. Their head dims are equal, or with
    ``narrow_values`` those of :func:`value_dim`. Raises :class:`InvalidProblem` and
    :class:`UnsupportedProblem`.
    """
    dtypes = {dtype: name for name, dtype in TORCH_DTYPES.items()}
    for name, tensor in zip(names, (q, k, v), strict=True):
        if not isinstance(tensor, Tensor):
            raise InvalidProblem(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
        require_strided(**{name: tensor})
        if tensor.dim() != int(dimensions[0]):
            raise InvalidProblem(f"{name} has {tensor.dim()} dimensions; it must have {dimensions}")
        if tensor.device.type not in ("cpu", "cuda"):
            raise InvalidProblem(f"{name} is on {tensor.device}; it must be on the CPU or a CUDA GPU")
        require_memory(name, tensor)
        if tensor.device != q.device:
            raise InvalidProblem(
                f"{name} is on {tensor.device} and query on {q.device}; all must be on one device"
            )
        if kv_dtype is not None and tensor is not q:
            if tensor.dtype != kv_dtype:
                raise InvalidProblem(f"{name} is {tensor.dtype}; {names[1]} and {names[2]} have one dtype")
            continue
        if tensor.dtype not in dtypes:
            known = ", ".join(str(dtype) for dtype in dtypes)
            raise UnsupportedProblem(f"{name} is {tensor.dtype}; it must be one of {known}")
        if tensor.dtype != q.dtype:
            raise InvalidProblem(f"{name} is {tensor.dtype} and query {q.dtype}; all must have one dtype")
    narrow = (*k.shape[:-1], value_dim(k.shape[-1]))
    of_v = narrow if narrow_values else k.shape
    if v.shape in (narrow, k.shape) and v.shape != of_v:
        raise UnsupportedProblem(
            f"{names[1]} has head_dim {k.shape[-1]} and {names[2]} {v.shape[-1]}: no rung computes this here",
            f"Attention without sequences or a cache takes {names[2]} of {narrow[-1]}, as in MLA; of other "
            f"tensors fill all three with zeros to d = 256, and pass scale={k.shape[-1]} ** -0.5."
            if narrow != k.shape
            else "",
        )
    if v.shape != of_v:
        wanted = "have the same shape" if of_v == k.shape else f"go together: {names[2]} {of_v}"
        raise InvalidProblem(
            f"{names[1]} is {tuple(k.shape)} and {names[2]} {tuple(v.shape)}; they must {wanted}"
        )
    if k.shape[-1] != q.shape[-1]:
        raise InvalidProblem(
            f"{names[1]} has head_dim {k.shape[-1]} and query {q.shape[-1]}; they must be equal"
        )
    return dtypes[q.dtype]


def _check_heads(q: Tensor, k: Tensor, enable_gqa: bool) -> None:
    if k.shape[1] != q.shape[1] and not enable_gqa:
        raise InvalidProblem(
            f"query has {q.shape[1]} heads and key {k.shape[1]}",
            "With enable_gqa=True query's heads may be a multiple of key's.",
        )
    if not isinstance(enable_gqa, bool):
        raise InvalidProblem(f"enable_gqa is {enable_gqa!r}; it must be True or False")


def problem_of_sequences(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets_q: Tensor,
    offsets_k: Tensor,
    scale: float | None,
    enable_gqa: bool,
    window_size: tuple[int, int],
) -> Problem:
    """Derives the problem of sequences one after another: q (tokens, H, d), k and v (tokens, Hkv, d), and the
    offsets of the sequences (B + 1), int32, which are read.

    Raises :class:`InvalidProblem` and :class:`UnsupportedProblem`.
    """
    dtype = check_tensors(q, k, v, "3: (tokens of all sequences, heads, head_dim)")
    _check_heads(q, k, enable_gqa)
    q_lens = sequence_lengths("cu_seq_q", offsets_q, q, "query")
    kv_lens = sequence_lengths("cu_seq_k", offsets_k, k, "key")
    if len(q_lens) != len(kv_lens):
        raise InvalidProblem(
            f"cu_seq_q has {len(q_lens)} sequences and cu_seq_k {len(kv_lens)}; they must have as many"
        )
    if not len(q) or not len(k):
        raise InvalidProblem(f"query has {len(q)} tokens and key {len(k)}; there must be one of each")
    sizes = (len(q_lens), q.shape[1], max(q_lens), max(kv_lens), q.shape[2], k.shape[1])
    window = None if window_size == (-1, -1) else window_size
    return Problem(*sizes, dtype=dtype, scale=scale, window=window, q_lens=q_lens, kv_lens=kv_lens)


def problem_of_tensors(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Problem:
    """Derives the problem of these tensors; a window without limits is none.

    Raises :class:`InvalidProblem` and :class:`UnsupportedProblem`.
    """
    dtype = check_tensors(q, k, v, "4: (batch, heads, sequence, head_dim)", narrow_values=True)
    if k.shape[0] != q.shape[0]:
        raise InvalidProblem(f"key has batch {k.shape[0]} and query {q.shape[0]}; they must be equal")
    _check_heads(q, k, enable_gqa)
    if not isinstance(is_causal, bool):
        raise InvalidProblem(f"is_causal is {is_causal!r}; it must be True or False")
    if sinks is not None:
        check_sinks(sinks, q)
    batch, heads, q_len, head_dim = q.shape
    return Problem(
        batch,
        heads,
        q_len,
        k.shape[2],
        head_dim,
        kv_heads=k.shape[1],
        dtype=dtype,
        is_causal=is_causal,
        scale=scale,
        window=None if window_size == (-1, -1) else window_size,
        softcap=softcap,
        sinks=sinks is not None,
    )


def check_sinks(sinks: Tensor, q: Tensor) -> None:
    """Raises :class:`InvalidProblem` unless they are a number per head of q (B, H, N, d), fp32."""
    if not isinstance(sinks, Tensor):
        raise InvalidProblem(f"sinks are a {type(sinks).__name__}; they must be a torch.Tensor")
    require_strided(sinks=sinks)
    if sinks.shape != q.shape[1:2]:
        raise InvalidProblem(
            f"sinks are {tuple(sinks.shape)} and query has {q.shape[1]} heads; it is one number per head, "
            f"({q.shape[1]},)"
        )
    if sinks.device != q.device:
        raise InvalidProblem(
            f"sinks are on {sinks.device} and query on {q.device}; all must be on one device"
        )
    if sinks.dtype != torch.float32:
        raise InvalidProblem(f"sinks are {sinks.dtype}; kernels take torch.float32", "Pass sinks.float().")
