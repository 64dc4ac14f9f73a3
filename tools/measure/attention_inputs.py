"""Inputs of attention and of its gradients, drawn on the GPU: those of the package are drawn on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from ladder.operations import BackwardProblem, Problem
from ladder.operations.attention.inputs import make_sinks
from ladder.operations.attention.jagged import attention_of_sequences, offsets
from ladder.operations.attention.reference import attention_float64
from ladder.operations.base import torch_dtypes


def make_inputs(problem: Problem, device: str = "cuda") -> dict[str, Tensor | None]:
    """Standard normal values; for gradients also the exact o and lse, rounded."""
    generator = torch.Generator(device).manual_seed(1)
    dtype = torch_dtypes()[problem.dtype or "bf16"]

    def draw(heads: int, length: int, lengths: tuple[int, ...] | None, head_dim: int) -> Tensor:
        sizes = (problem.batch, heads, length) if lengths is None else (sum(lengths), heads)
        return torch.randn(*sizes, head_dim, generator=generator, device=device).to(dtype)

    of_queries = (problem.heads, problem.q_len, problem.q_lens)
    of_keys = (problem.num_kv_heads, problem.kv_len, problem.kv_lens)
    inputs: dict[str, Tensor | None] = {
        "q": draw(*of_queries, problem.head_dim),
        "k": draw(*of_keys, problem.head_dim),
        "v": draw(*of_keys, problem.value_dim),
    }
    inputs["sinks"] = make_sinks(problem, device)
    for name, lengths in (("cu_seqlens_q", problem.q_lens), ("cu_seqlens_k", problem.kv_lens)):
        inputs[name] = None if lengths is None else offsets(lengths, device)
    if not isinstance(problem, BackwardProblem):
        return inputs
    o, lse = exact(problem, inputs)
    inputs |= {"o": o.to(dtype), "lse": lse.float(), "d_o": draw(*of_queries, problem.value_dim)}
    inputs["d_lse"] = None
    return inputs if problem.sinks else {**inputs, "d_sinks": None}


def exact(problem: Problem, inputs: dict[str, Tensor | None]) -> tuple[Tensor, Tensor]:
    """o and lse in float64."""
    if problem.q_lens is not None:
        return attention_of_sequences(problem, inputs)
    q, k, v = (inputs[name] for name in "qkv")
    assert q is not None and k is not None and v is not None
    return attention_float64(q, k, v, sinks=inputs["sinks"], **problem.rules)
