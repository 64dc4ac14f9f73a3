"""Sequences of different lengths, one after another in a tensor: inputs, and the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ladder.operations.attention.problem import Problem
from ladder.operations.attention.reference import AttentionReference, attention_float64, reference


def packed(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """The first tokens of each sequence of x (B, H, N, d), as (tokens, H, d)."""
    parts = [one[:, :length].transpose(0, 1) for one, length in zip(x, lengths, strict=True)]
    return torch.cat(parts).contiguous()


def offsets(lengths: Sequence[int], device: str = "cpu") -> Tensor:
    """(sequences + 1), int32."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


def tokens_of_sequences(problem: Problem) -> Iterator[tuple[slice, slice]]:
    """The queries and the keys of each sequence that has both, among those of all sequences."""
    assert problem.q_lens is not None and problem.kv_lens is not None
    row = key = 0
    for n, m in zip(problem.q_lens, problem.kv_lens, strict=True):
        if n and m:
            yield slice(row, row + n), slice(key, key + m)
        row, key = row + n, key + m


def alone(x: Tensor) -> Tensor:
    """A sequence's tokens (tokens, H, d) as (1, H, tokens, d)."""
    return x.transpose(0, 1)[None]


def attention_of_sequences(problem: Problem, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Computes o (tokens, H, d) and lse (H, tokens) in float64."""
    q, k, v = (inputs[name] for name in "qkv")
    o = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full((q.shape[1], len(q)), -math.inf, dtype=torch.float64, device=q.device)
    for rows, keys in tokens_of_sequences(problem):
        found = attention_float64(*map(alone, (q[rows], k[keys], v[keys])), **problem.rules)
        o[rows], lse[:, rows] = found[0][0].transpose(0, 1), found[1][0]
    return o, lse


def reference_of_sequences(problem: Problem, inputs: Mapping[str, Any]) -> AttentionReference:
    """Computes the reference of each sequence for itself: o (tokens, H, d) and lse (H, tokens).

    The errors of each element have the limits of :func:`ladder.operations.attention.reference.reference`.
    """
    q, k, v, sinks = (inputs[name] for name in ("q", "k", "v", "sinks"))
    o = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    limits, lse_bound = torch.zeros_like(o), 0.0
    lse = torch.full((q.shape[1], len(q)), -math.inf, dtype=torch.float64, device=q.device)
    if sinks is not None:
        lse[:] = sinks[:, None]
    for rows, keys in tokens_of_sequences(problem):
        found = reference(*map(alone, (q[rows], k[keys], v[keys])), sinks=sinks, **problem.rules)
        o[rows] = found.o[0].transpose(0, 1)
        limits[rows] = torch.as_tensor(found.limits["o"])[0].transpose(0, 1)
        lse[:, rows] = found.lse[0]
        lse_bound = max(lse_bound, found.lse_bound)
    return AttentionReference({"o": o, "lse": lse}, {"o": limits, "lse": lse_bound})
