"""Attention in float64, and bounds on the errors of a correct kernel.

The bounds are proved, not fitted: no kernel that computes as listed here exceeds them. u = 2^-24 is the
rounding error of fp32, u_T that of the tensors' dtype (2^-11 in f16, 2^-8 in bf16; in f32 weights and o are
not rounded again: 0). For query i, with n visible keys, logits s_j, their maximum m, weights p_j = exp(s_j -
lse) and A_j = |scale| sum_x |q_x k_jx|:

* A logit is a sum of d products in fp32, in any order. Each addition errs by at most t u times the largest
  number in it, which is at most A_j / |scale|; t = 1 if it rounds, t = 2 if it truncates, as tensor cores do
  (Fasi et al. 2021, "Numerical behavior of NVIDIA tensor cores"). Tensor cores align the products of a step
  with the accumulator, and truncate all of them and the result: 10 truncations for a step of 8 products. So
  the logit errs by 5/4 t d u A_j.
* The scale is rounded to fp32, multiplied by log2(e), itself rounded, and by the logit; a maximum is
  subtracted, and at the end multiplied by ln(2). These are at most 6 roundings of s_j and 6 of m. exp adds 4
  u (PTX: ex2.approx errs by 2^-22 at most). So the relative error of each weight is at most e_j = u (5/4 t d
  A_j + 6 |s_j| + 6 |m| + 4).
* l, the sum of the weights, takes n additions and, for each tile of at least 16 keys in which m grows, a
  rescale with an exp and two roundings (in other tiles the factor is exactly 1). With E = sum_j p_j e_j, its
  relative error is E + g, g = u (3/2 n + 8).
* lse = m + log(l): an error of m shifts the weights, too, and cancels. What remains is |lse - ref| <= E + g +
  u (|m| + 5 log(n) + 8), the last term for lg2.approx (2^-22) and for the sum.
* A softcap c makes the logit s_j = c tanh(x_j / c) of x_j = scale sum_x q_x k_jx. tanh has a slope of at
  most 1, and x tanh'(x) <= tanh(x), so errors of x_j count no more than before. tanh.approx errs by 2^-11 of
  its value (PTX manual, "tanh"), which adds 2^-11 |s_j| to e_j.
* A sink is one more logit, without a rounded product, of a key whose value is 0: it belongs to m, to E and to
  the n + 1 terms of l.
* A kernel may compute the keys in parts, each with an o_P and lse_P of its own in fp32, and merge them with
  the weights exp(lse_P - max lse_P). Errors of l in a part's o and lse cancel. lse_P and its weight take at
  most 10 roundings of lse_P and of the maximum, 8 of log(n), and 10 others, by which the weights of all keys
  of the part err. As s_j <= lse_P <= lse, |lse_P| is at most |s_j| + |lse|, so merging adds u (10 |s_j| + 10
  |lse| + 8 log(n) + 10) to e_j. Each part has a key at least, so sums over parts are among those over keys.
* Keys and values may have a factor per head, and elements of 8 bits. The factor of the keys is one more
  rounding of s_j, which adds u |s_j| to e_j, and that of the values one of o, u |o_x|. As f16 holds the
  elements exactly, weights may be in f16 for tensors in bf16, too: then w below is that of f16.
* o is a sum over keys of weights times v, divided by l. Errors f_j of the weights that enter both sums
  contribute p_j (f_j - sum_i p_i f_i), which vanishes if one key has all the weight. So with c_j = e_j + E -
  2 p_j e_j, and r_j = u_T max(1, 2 - 2 p_j) for weights rounded to 16 bits before or after they are summed,
  |o - ref| <= R(p (c + r)) + 2 t n u R(p) + (g + u_T + 8 u) |o_x|: sums over keys and n / 16 rescales, then
  the division and the rounding of o. f16 is less precise below 2^-14, which adds w (1 + R(1) / l) with w =
  2^-25 and l with the true maximum; in f32 and bf16 what is below 2^-126 may become 0, and w = n 2^-126, as
  each rescale may do so. R(a) bounds |sum_j a_j' v_jx| for all |a_j'| <= a_j that are independent of v. The
  sum is at most sum_j a_j |v_jx|. As v is standard normal and drawn independently of q and k, the sum is also
  normal with at most the deviation |a| = (sum_j a_j^2)^(1/2), and exceeds 7 |a| once in 4 * 10^11 times: R(a)
  is the smaller of the two.

A row that sees no key has o = 0 and lse = -inf, exactly.

The steps hold for each element of o alone: o_x is made of column x of v and of weights that do not depend on
v. So each has a limit of its own: under a causal mask the last rows, in which many values average out, are
smaller than the errors that the first ones may have. lse has one bound for all queries, the largest.

The errors of all elements together have limits, too: :mod:`ladder.operations.attention.spread`.

Not covered: logits beyond the range of fp32; and, with keys in e4m3, elements of q in bf16 below 2^-32 of
their row's largest, which lose bits in f16.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ladder.operations.attention.rows import (
    DEVIATIONS,
    F16_SUBNORMAL,
    ROUNDING,
    SMALLEST,
    Rows,
    U,
    query_rows,
)
from ladder.operations.attention.spread import SpreadOfRows
from ladder.operations.base import Reference, largest


class AttentionReference(Reference):
    """o (B, H, N, d) and lse (B, H, N) in float64, on the inputs' device, with the bounds derived above."""

    @property
    def o(self) -> Tensor:
        return self.outputs["o"]

    @property
    def lse(self) -> Tensor:
        return self.outputs["lse"]

    @property
    def error_bound(self) -> float:
        """The largest error bound of an element of o."""
        return self.bounds["o"]

    @property
    def lse_bound(self) -> float:
        return self.bounds["lse"]


def attention_float64(q: Tensor, k: Tensor, v: Tensor, **rules: Any) -> tuple[Tensor, Tensor]:
    """Computes o (B, H, N, d) and lse (B, H, N) in float64; ``rules`` as in :func:`query_rows`."""
    o = torch.empty((*q.shape[:3], v.shape[3]), dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    for rows in query_rows(q, k, v, **rules):
        rows.of(o)[:], rows.of(lse)[:] = rows.o, rows.lse[..., 0]
    return o, lse


def reference(q: Tensor, k: Tensor, v: Tensor, *, scale: float, **rules: Any) -> AttentionReference:
    """Computes the reference for q (B, H, N, d), k and v (B, Hkv, M, d) in the dtype that the stage gets;
    ``rules`` as in :func:`query_rows`.

    The bound of o assumes v to be standard normal and independent of q and k, as in
    :mod:`ladder.operations.attention.inputs`.
    """
    o = torch.empty((*q.shape[:3], v.shape[3]), dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    limits, lse_bound = torch.empty_like(o), 0.0
    spread = SpreadOfRows(o, q.dtype)
    for rows in query_rows(q, k, v, scale=scale, **rules):
        rows.of(o)[:], rows.of(lse)[:] = rows.o, rows.lse[..., 0]
        products = rows.q.abs() @ rows.k.abs().mT * abs(scale)
        rows.of(limits)[:], of_lse = _bounds(rows, products, q.dtype)
        lse_bound = max(lse_bound, of_lse)
        spread.add(rows, products)
    return AttentionReference({"o": o, "lse": lse}, {"o": limits, "lse": lse_bound}, {"o": spread.result()})


def _bounds(rows: Rows, products: Tensor, dtype: torch.dtype) -> tuple[Tensor, float]:
    """The bounds of each element of o (h, n, d), and the largest of lse, in the module docstring's notation;
    ``products`` are the A_j (h, n, M), values per query are columns (h, n, 1).
    """
    o, d, rounding = rows.o, rows.q.shape[-1], ROUNDING[dtype]
    truncation = 1 if dtype == torch.float32 else 2
    p, m, n = rows.p, rows.m, rows.n
    e_j = rows.logit_errors(1.25 * truncation * d * U * products, m)
    e = rows.error_of_sums(e_j)
    g = U * (1.5 * n + 8)
    lse_bounds = e + g + U * (m.abs() + 5 * n.log() + 8)

    def sums(a: Tensor) -> Tensor:  # R(a)
        return torch.minimum(DEVIATIONS * a.norm(dim=-1, keepdim=True), a @ rows.v.abs())

    c, r = e_j + e - 2 * p * e_j, rounding * (2 - 2 * p).clamp_min(1)
    last = g + rounding + (9 if rows.scaled else 8) * U
    o_bounds = sums(p * (c + r)) + 2 * truncation * n * U * sums(p) + last * o.abs()
    seen = (rows.s > -math.inf).double()
    small = F16_SUBNORMAL if dtype == torch.float16 or rows.scaled else n * SMALLEST
    o_bounds += small * (1 + sums(seen) * torch.exp(m - rows.finite_lse))
    return o_bounds, largest(lse_bounds)
