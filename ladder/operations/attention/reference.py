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

The steps hold for each element of o alone: o_x is made of column x of v and of weights that do not depend on
v. So each has a limit of its own: under a causal mask the last rows, in which many values average out, are
smaller than the errors that the first ones may have. lse has one bound for all queries, the largest.

The limit of an element is several times its usual error, so a kernel that rounds too often, or whose l is a
little off, stays below the limits of all elements. But roundings are independent, so the errors of all
elements together have narrow limits (:class:`ladder.operations.base.Spread`). Rounding to 16 bits errs by a
number that is uniform between -u_T and u_T of the value, or less: its variance is at most u_T^2 / 3. A sum of
n products errs by E(n) = u (n / 8 + 2 n^(1/2)) of its largest partial sum: tensor cores truncate it in steps
of 8 or more, each time towards 0 and by u in the mean, and roundings of either sign add up to no more than 2
n^(1/2). So the error of o_x has a standard deviation of at most

    D_x = u_T / 3^(1/2) (sum_j p_j^2 (v_jx^2 + o_x^2) + o_x^2)^(1/2)
          + |p c'| + E(n) |p| + u (2 n^(1/2) + 8) |o_x|

with c' as c above, and E(d) A_j in place of 5/4 t d u A_j in e_j. With the number of keys, it grows as
|o_x| does; only E(n) grows faster, and reaches u_T of bf16 at n = 500,000. A kernel that also rounds o to 16
bits at each of T tiles adds about T / 2 times the variance of the last rounding.

The mean of (error / D)^2 over all elements of R different rows is at most 1, and its variance (0.8 w + 2 / d)
/ R. w is the mean of sum_j p_j^4 / (sum_j p_j^2)^2, the share of a row's errors that all of its elements have
in common; the square of a uniform number has a variance of 0.8 of its squared mean. The mean of <error, o> /
<o, o> over the rows is what all weights of a row err together, u (n / 8 + 2 n^(1/2) + 8) + sum_j p_j e_j',
and its variance u_T^2 / 3 (w + 4 / d) / R. Both may be 7 deviations off.

Not covered: logits beyond the range of fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ladder.operations.attention.memory import LOGITS_AT_ONCE
from ladder.operations.base import Reference, Spread, largest

_U = 2.0**-24
#: Relative rounding errors of the dtype of weights and o; below 2^-14, f16's is absolute.
_ROUNDING = {torch.float32: 0.0, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_F16_SUBNORMAL = 2.0**-25
#: The smallest normal number of f32 and bf16.
_SMALLEST = 2.0**-126
#: The number of standard deviations that a normal variable practically never exceeds.
_DEVIATIONS = 7.0


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


@dataclass(frozen=True)
class Rows:
    """Query rows of some kv heads in float64: q (h, n, d), k and v (h, M, d), logits s (h, n, M), -inf where
    masked.

    The rows of all query heads that read a kv head follow each other; heads are numbered across the batch.
    """

    heads: slice
    rows: slice
    kv_heads: int
    q: Tensor
    k: Tensor
    v: Tensor
    s: Tensor

    def of(self, tensor: Tensor) -> Tensor:
        """The part (h, n, ...) of a tensor (B, H, N, ...), which it shares memory with."""
        return tensor.reshape(self.kv_heads, -1, *tensor.shape[3:])[self.heads, self.rows]

    def of_keys(self, tensor: Tensor) -> Tensor:
        """The part (h, M, ...) of a tensor (B, Hkv, M, ...), which it shares memory with."""
        return tensor.flatten(0, 1)[self.heads]

    @cached_property
    def lse(self) -> Tensor:
        """(h, n, 1)."""
        return torch.logsumexp(self.s, dim=-1, keepdim=True)

    @cached_property
    def p(self) -> Tensor:
        """The weights (h, n, M)."""
        return torch.exp(self.s - self.lse)

    @cached_property
    def o(self) -> Tensor:
        """(h, n, d)."""
        return self.p @ self.v


def query_rows(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float) -> Iterator[Rows]:
    """Yields all query rows, in chunks that fit into memory."""
    kv_heads, kv_len, q_len = k.shape[0] * k.shape[1], k.shape[2], q.shape[2]
    rows = q.shape[0] * q.shape[1] // kv_heads * q_len
    row_step = max(1, min(rows, LOGITS_AT_ONCE // max(kv_len, q.shape[3])))
    head_step = max(1, LOGITS_AT_ONCE // (row_step * max(kv_len, q.shape[3])))
    keys, queries = torch.arange(kv_len, device=q.device), torch.arange(rows, device=q.device) % q_len
    for head in range(0, kv_heads, head_step):
        heads = slice(head, head + head_step)
        k64, v64 = (x.flatten(0, 1)[heads].double() for x in (k, v))
        for row in range(0, rows, row_step):
            part = slice(row, row + row_step)
            q64 = q.reshape(kv_heads, rows, -1)[heads, part].double()
            s = q64 @ k64.mT * scale
            if is_causal:
                s.masked_fill_(keys > queries[part, None], -math.inf)
            yield Rows(heads, part, kv_heads, q64, k64, v64, s)


def attention_float64(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Computes o (B, H, N, d) and lse (B, H, N) in float64."""
    o = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    for rows in query_rows(q, k, v, is_causal, scale):
        rows.of(o)[:], rows.of(lse)[:] = rows.o, rows.lse[..., 0]
    return o, lse


def reference(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, scale: float) -> AttentionReference:
    """Computes the reference for q (B, H, N, d), k and v (B, Hkv, M, d) in the dtype that the stage gets.

    The bound of o assumes v to be standard normal and independent of q and k, as in
    :mod:`ladder.operations.attention.inputs`.
    """
    o = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float64, device=q.device)
    limits, lse_bound = torch.empty_like(o), 0.0
    spread = _SpreadOfRows(o, q.dtype)
    for rows in query_rows(q, k, v, is_causal, scale):
        rows.of(o)[:], rows.of(lse)[:] = rows.o, rows.lse[..., 0]
        products = rows.q.abs() @ rows.k.abs().mT * abs(scale)
        rows.of(limits)[:], of_lse = _bounds(rows, products, q.dtype)
        lse_bound = max(lse_bound, of_lse)
        spread.add(rows, products)
    return AttentionReference({"o": o, "lse": lse}, {"o": limits, "lse": lse_bound}, {"o": spread.result()})


class _SpreadOfRows:
    """Makes the :class:`Spread` of o (B, H, N, d), in the module docstring's notation."""

    def __init__(self, o: Tensor, dtype: torch.dtype) -> None:
        self._o, self._dtype = o, dtype
        self._deviations = torch.empty_like(o)
        self._rounding = _ROUNDING[dtype] / math.sqrt(3)
        self._smallest = (_F16_SUBNORMAL if dtype == torch.float16 else _SMALLEST) / math.sqrt(3)
        self._shared = self._common = 0.0  # sums of w, and of what a row's weights err together

    def add(self, rows: Rows, products: Tensor) -> None:
        """``products`` are the A_j (h, n, M)."""
        o, p, s = rows.o, rows.p, rows.s
        n = (s > -math.inf).sum(-1, keepdim=True).double()
        m = s.amax(-1, keepdim=True)
        e_j = _of_sum(o.shape[-1]) * products + _U * (6 * s.abs().nan_to_num(posinf=0) + 6 * m.abs() + 4)
        e = (p * e_j).sum(-1, keepdim=True)
        squares = p.square()
        total = squares.sum(-1, keepdim=True)
        rounded = self._rounding * (squares @ rows.v.square() + (total + 1) * o.square()).sqrt()
        small = self._smallest * (1 + n.sqrt() * torch.exp(m - rows.lse))
        summed = (p * (e_j + e - 2 * p * e_j)).norm(dim=-1, keepdim=True) + _of_sum(n) * total.sqrt()
        rows.of(self._deviations)[:] = rounded + small + summed + _U * (2 * n.sqrt() + 8) * o.abs()
        self._shared += float((squares.square().sum(-1, keepdim=True) / total.square()).sum())
        self._common += float((_of_sum(n) + 8 * _U + e).sum())

    def result(self) -> Spread:
        d, rows = self._o.shape[-1], self._o[..., 0].numel()
        # Rows that are rounded alike err alike.
        different = len(torch.unique(self._o[..., :2].to(self._dtype).flatten(0, -2), dim=0))
        shared, common = self._shared / rows, self._common / rows
        mean_square = 1 + _DEVIATIONS * math.sqrt((0.8 * shared + 2 / d) / different)
        gain = common + _DEVIATIONS * self._rounding * math.sqrt((shared + 4 / d) / different)
        return Spread(self._deviations, mean_square, gain)


def _of_sum(n: Any) -> Any:
    """E(n), of a number or a tensor."""
    return _U * (n / 8 + 2 * n**0.5)


def _bounds(rows: Rows, products: Tensor, dtype: torch.dtype) -> tuple[Tensor, float]:
    """The bounds of each element of o (h, n, d), and the largest of lse, in the module docstring's notation;
    ``products`` are the A_j (h, n, M), values per query are columns (h, n, 1).
    """
    o, d, rounding = rows.o, rows.q.shape[-1], _ROUNDING[dtype]
    truncation = 1 if dtype == torch.float32 else 2
    s, lse, p = rows.s, rows.lse, rows.p
    n = (s > -math.inf).sum(-1, keepdim=True)
    m = s.amax(-1, keepdim=True)
    e_j = _U * (1.25 * truncation * d * products + 6 * s.abs().nan_to_num(posinf=0) + 6 * m.abs() + 4)
    e = (p * e_j).sum(-1, keepdim=True)
    g = _U * (1.5 * n + 8)
    lse_bounds = e + g + _U * (m.abs() + 5 * n.log() + 8)

    def sums(a: Tensor) -> Tensor:  # R(a)
        return torch.minimum(_DEVIATIONS * a.norm(dim=-1, keepdim=True), a @ rows.v.abs())

    c, r = e_j + e - 2 * p * e_j, rounding * (2 - 2 * p).clamp_min(1)
    o_bounds = sums(p * (c + r)) + 2 * truncation * n * _U * sums(p) + (g + rounding + 8 * _U) * o.abs()
    seen = (s > -math.inf).double()
    small = _F16_SUBNORMAL if dtype == torch.float16 else n * _SMALLEST
    o_bounds += small * (1 + sums(seen) * torch.exp(m - lse))
    return o_bounds, largest(lse_bounds)
