"""HSTU attention in float64, and bounds on the errors of a correct kernel.

The bound is that of the public kernels' own tests, max |kernel - exact| <= m * max |16 bits - exact|, with m
= 2 forward and 5 for gradients, where "16 bits" is the same formula computed by torch with every step rounded
to the dtype; plus the error of fp32 sums: 2^-20 times the largest sum of absolute values, that is sixteen
fp32 roundings for the products' truncation and the sums over keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.operations.base import Reference, largest
from ladder.operations.hstu.mask import hstu_mask
from ladder.operations.hstu.problem import HstuProblem

_FP32 = 2.0**-20
_FORWARD, _BACKWARD = 2.0, 5.0


@dataclass(frozen=True)
class JaggedSequence:
    """One sequence: q (n, H, d), k and v (m, H, d), bias (bias heads, n, m) or None, seen (n, m)."""

    queries: slice
    keys: slice
    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    seen: Tensor
    number: int


def sequences(problem: HstuProblem, inputs: Mapping[str, Any]) -> Iterator[JaggedSequence]:
    """Yields the sequences of a batch."""
    first_q = first_k = 0
    for b in range(problem.batch):
        n, m, contexts, targets = problem.sequence(b)
        queries, keys = slice(first_q, first_q + n), slice(first_k, first_k + m)
        intervals = inputs["intervals"]
        seen = hstu_mask(
            n,
            m,
            contexts,
            targets,
            problem.target_group_size,
            problem.window,
            None if intervals is None else intervals[:, queries].cpu(),
        )
        k, v = _keys(problem, inputs, b, queries, keys)
        bias = None if inputs["rab"] is None else inputs["rab"][b, :, m - n : m, :m]
        q = inputs["q"][queries, : problem.heads]
        yield JaggedSequence(queries, keys, q, k, v, bias, seen.to(q.device), b)
        first_q, first_k = queries.stop, keys.stop


def _keys(
    problem: HstuProblem, inputs: Mapping[str, Any], b: int, queries: slice, keys: slice
) -> tuple[Tensor, Tensor]:
    """Returns k and v of sequence b, gathered from its pages if there are any."""
    if not problem.page_size:
        return inputs["k"][keys, : problem.heads], inputs["v"][keys, : problem.heads]
    _, kv_len, _, targets = problem.sequence(b)
    first, end = inputs["page_offsets"][b : b + 2].tolist()
    pages = inputs["kv_cache"][inputs["page_ids"][first:end].long()]
    rest = slice(queries.stop - targets, queries.stop)
    k, v = (
        torch.cat([pages[:, x].flatten(0, 1)[: kv_len - targets], inputs[name][rest, : problem.heads]])
        for x, name in enumerate("kv")
    )
    return k, v


def hstu_attention_torch(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, seen: Tensor, alpha: float, length: int
) -> Tensor:
    """Computes o (n, H, d) of one sequence with every step in the dtype of the tensors."""
    s = torch.einsum("nhd,mhd->hnm", q, k)
    x = alpha * (s if bias is None else s + bias)
    p = F.silu(x) * seen
    return torch.einsum("hnm,mhd->nhd", p, v) / length


def reference(problem: HstuProblem, inputs: Mapping[str, Any]) -> Reference:
    """Computes o (total_q, H, d) in float64, on the inputs' device, with its bound."""
    q = inputs["q"]
    o = torch.empty(q.shape[0], problem.heads, problem.head_dim, dtype=torch.float64, device=q.device)
    rounded = torch.empty_like(o)
    terms = 0.0
    for one in sequences(problem, inputs):
        numbers = (problem.factor, problem.length)
        bias = None if one.bias is None else one.bias.double()
        o[one.queries] = hstu_attention_torch(
            one.q.double(), one.k.double(), one.v.double(), bias, one.seen, *numbers
        )
        rounded[one.queries] = hstu_attention_torch(
            one.q, one.k, one.v, one.bias, one.seen, *numbers
        ).double()
        terms = max(terms, _largest_sum(one, *numbers))
    return Reference({"o": o}, {"o": _FORWARD * largest(rounded - o) + _FP32 * terms})


def _largest_sum(one: JaggedSequence, alpha: float, length: int) -> float:
    """The maximum over o's elements of 1 / length * sum of (1 + |alpha| sum |q k| + |alpha bias|) |v|.

    A weight's error is about its logit's, since silu's slope is at most 1.1.
    """
    products = torch.einsum("nhd,mhd->hnm", one.q.double().abs(), one.k.double().abs())
    bias = 0.0 if one.bias is None else one.bias.double().abs()
    weights = (1 + abs(alpha) * (products + bias)) * one.seen
    return largest(torch.einsum("hnm,mhd->nhd", weights, one.v.double().abs())) / length


def gradients(problem: HstuProblem, inputs: Mapping[str, Any], *, bias: bool) -> Reference:
    """Computes dq, dk, dv and, with ``bias``, d_rab in float64 by torch's autograd, with their bounds."""
    exact = _differentiated(problem, inputs, torch.float64, bias)
    rounded = _differentiated(problem, inputs, inputs["q"].dtype, bias)
    absolute = _differentiated(problem, {**inputs, **_absolute(inputs)}, torch.float64, bias)
    bounds = {
        name: _BACKWARD * largest(rounded[name].double() - exact[name]) + _FP32 * largest(absolute[name])
        for name in exact
    }
    return Reference(exact, bounds)


def _absolute(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: inputs[name].abs() for name in ("q", "k", "v", "d_o")}


def _differentiated(
    problem: HstuProblem, inputs: Mapping[str, Any], dtype: torch.dtype, bias: bool
) -> dict[str, Tensor]:
    heads, d_o = problem.heads, inputs["d_o"].to(dtype)
    leaves = {name: inputs[name][:, :heads].to(dtype).requires_grad_() for name in "qkv"}
    rab = inputs["rab"]
    if rab is not None:
        leaves["rab"] = rab.nan_to_num().to(dtype).requires_grad_()
    total = torch.zeros((), dtype=dtype, device=d_o.device)
    for one in sequences(problem, {**inputs, **leaves}):
        o = hstu_attention_torch(one.q, one.k, one.v, one.bias, one.seen, problem.factor, problem.length)
        total = total + (o * d_o[one.queries]).sum()
    found = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    names = {"q": "dq", "k": "dk", "v": "dv", **({"rab": "d_rab"} if bias else {})}
    return {name: found[leaf] for leaf, name in names.items()}
