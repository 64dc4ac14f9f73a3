"""Attention's gradients in float64, and bounds on the errors of a correct kernel.

The bounds are derived as in :mod:`ladder.operations.attention.reference`: u = 2^-24, u_T is the rounding
error of the tensors' dtype, t = 1 in f32 and 2 on tensor cores. For query i and key j, with logits s_ij,
weights p_ij, A_ij = |scale| sum_x |q_ix k_jx|, dP_ij = sum_x dO_ix v_jx and delta_i = sum_x dO_ix o_ix -
d_lse_i, a kernel gets o and lse and computes

    P = exp(s - lse)    dS = P (dP - delta)    dV = P^T dO    dQ = scale dS K    dK = scale dS^T Q

* Nothing normalises P, as lse is given. By the steps of the forward pass its relative error is at most e_ij =
  u (5/4 t d A_ij + 6 |s_ij| + 6 |lse_i| + 4).
* dP_ij errs by h_ij = 5/4 t d u sum_x |dO_ix v_jx|.
* The o that a kernel gets was rounded, so delta_i errs by sum_x dO_ix (that o_ix - o_ix), the same for all
  keys; and by u ((d + 2) sum_x |dO_ix o_ix| + 2 |d_lse_i|).
* P and dS are rounded to 16 bits, in f32 not at all. The roundings of P may have a part in common, at most
  u_T, which changes a gradient by as much of itself; those of dS are independent of each other, with a
  deviation of at most u_T / 3^(1/2).
* A sum of n products errs by 5/4 t n u times its largest partial sum. The result is rounded.

A sum of terms a whose signs are independent, as those of dO, v and roundings are, exceeds 7 (sum a^2)^(1/2)
once in 4 * 10^11 times, and never exceeds sum |a|: R(a) is the smaller of the two. The roundings of P and dS
together count 2 u_T in the latter and (1 + 1/3)^(1/2) u_T in the former; R' is R with these factors. Hence,
with dS without its factor scale,

    |dV - ref| <= u_T R(p dO) + sum_i p e |dO| + 5/4 t n u R(p dO) + u_T |dV|
    |dQ - ref| <= |scale| (u_T R'(dS K) + sum_j p (e |dP - delta| + h) |K| + |error of delta| |sum_j p K|
                  + 5/4 t n u R(dS K)) + (2 u_T + 2 u) |dQ|

and dK as dQ with Q for K, where the error of delta counts as one of dP, and with the queries of all heads of
a group. f16 is less precise below 2^-14: each number rounded to it errs by 2^-25 more, also P for bf16, which
a kernel may keep in f16. Below 2^-126 a number may become 0: P, dS, each product of the n and the result err
by so much more. Errors of errors come to 4 u_T of all of this, and to e h, and e and the roundings times the
error of delta.

* With a softcap c, s = c t with t = tanh(x / c), and dS = P (dP - delta) (1 - t^2). e_ij contains
  tanh.approx's 2^-11 |s_ij|, and 1 - t^2 errs by 2^-10 t^2 + 4 u, and by 2 (1 - t^2) / c times the error of
  x_ij. A kernel may get t from P and lse, t = (log(P) + lse) / c, which errs by u (6 c + 6 |lse_i| + 16) / c.
* The gradient of a head's sink is -sum_i exp(sink - lse_i) delta_i, as its value is 0. Each weight errs by at
  most u (6 |sink| + 6 |lse_i| + 4) of itself, and the sum, in fp32, by u per term of the sum of their sizes.

Each step holds for a single element, so each has a limit of its own: under a causal mask, the last rows of dK
and dV are smaller than the errors that the first ones may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ladder.operations.attention.rows import TANH_ERROR, Rows, query_rows
from ladder.operations.base import Reference

_U = 2.0**-24
#: Relative rounding errors of the dtypes; below 2^-14, f16's is absolute.
_ROUNDING = {torch.float32: _U, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_F16_SUBNORMAL = 2.0**-25
#: The smallest normal number of f32 and bf16.
_SMALLEST = 2.0**-126
#: The number of standard deviations that a normal variable practically never exceeds.
_DEVIATIONS = 7.0


class _Sums:
    """The sums that are a gradient's elements, those of errors that may all have the same sign, and those of
    the terms' sizes and squares, of which R is made.
    """

    def __init__(self, like: Tensor) -> None:
        self.exact, self.errors, self.sizes, self.squares = (
            torch.zeros(like.shape, dtype=torch.float64, device=like.device) for _ in range(4)
        )

    def add(self, part: Callable[[Tensor], Tensor], factor: Tensor, other: Tensor, errors: Tensor) -> None:
        """Adds products of matrices to a ``part`` of the tensor; ``errors`` are those of the first factor."""
        part(self.exact).add_(factor @ other)
        part(self.errors).add_(errors @ other.abs())
        part(self.sizes).add_(factor.abs() @ other.abs())
        part(self.squares).add_(factor.square() @ other.square())

    def limit(self, rounded_linear: float, rounded_square: float, of_sum: float, terms: int) -> Tensor:
        """The errors, plus R of the terms' roundings, plus ``of_sum`` of a sum of so many ``terms`` times R
        of the terms.
        """
        deviations = _DEVIATIONS * self.squares.sqrt()
        roundings = torch.minimum(rounded_linear * self.sizes, rounded_square * deviations)
        summed = of_sum * terms * torch.minimum(self.sizes, deviations)
        return self.errors + roundings + summed + (terms + 1) * _SMALLEST


def reference(inputs: Mapping[str, Any], *, scale: float, **rules: Any) -> Reference:
    """Computes the gradients dq (B, H, N, d), dk and dv (B, Hkv, M, d) of these inputs, on their device;
    ``rules`` as in :func:`ladder.operations.attention.reference.query_rows`.

    ``inputs`` holds q, k, v, o, d_o and d_lse, which may be None; lse, which stages also get, is recomputed
    in float64, and so is o, but for its rounding. The bounds assume v and d_o to be standard normal and
    independent of the others.
    """
    q, k, v, d_o, d_lse = (inputs[name] for name in ("q", "k", "v", "d_o", "d_lse"))
    dq, dk, dv = _Sums(q), _Sums(k), _Sums(v)
    sinks = _Sinks(q)
    group = q.shape[1] // k.shape[1]
    for rows in query_rows(q, k, v, scale=scale, sinks=inputs["sinks"], **rules):
        of_rows, rounded_o = rows.of(d_o).double(), rows.of(inputs["o"]).double()
        of_lse = torch.zeros_like(rows.lse) if d_lse is None else rows.of(d_lse)[..., None].double()
        of_delta = _add(rows, rounded_o, of_rows, of_lse, abs(scale), (dq, dk, dv), q.dtype)
        if rows.sink is not None:
            sinks.add(rows, (of_rows * rows.o).sum(-1, keepdim=True) - of_lse, of_delta)
    rounding = _ROUNDING[q.dtype]
    inner = 0.0 if q.dtype == torch.float32 else rounding
    subnormal = _F16_SUBNORMAL if q.dtype == torch.float16 else 0.0
    of_sum = 1.25 * _truncation(q.dtype) * _U
    keys, queries = k.shape[2], q.shape[2] * group
    gradients = {"dq": scale * dq.exact, "dk": scale * dk.exact, "dv": dv.exact}
    limits = {"dv": dv.limit(inner, inner, of_sum, queries) + rounding * dv.exact.abs() + subnormal}
    for name, sums, terms in (("dq", dq, keys), ("dk", dk, queries)):
        error = abs(scale) * sums.limit(2 * inner, math.sqrt(4 / 3) * inner, of_sum, terms)
        limits[name] = error + (rounding + inner + 2 * _U) * gradients[name].abs() + subnormal + _SMALLEST
    limits = {name: (1 + 4 * rounding) * limit for name, limit in limits.items()}
    if inputs["sinks"] is not None:
        gradients["d_sinks"], limits["d_sinks"] = sinks.result()
    return Reference(gradients, limits)


class _Sinks:
    """The gradient of the sinks (H) and its limits, from the terms of all rows (B, H, N)."""

    def __init__(self, q: Tensor) -> None:
        self._terms, self._errors = (
            torch.zeros(q.shape[:3], dtype=torch.float64, device=q.device) for _ in range(2)
        )

    def add(self, rows: Rows, delta: Tensor, of_delta: Tensor) -> None:
        """``delta`` and its error are columns (h, n, 1)."""
        assert rows.sink is not None
        weights = torch.exp(rows.sink - rows.lse)
        e = _U * (6 * rows.sink.abs() + 6 * rows.lse.abs() + 4)
        rows.of(self._terms)[:] = (weights * delta)[..., 0]
        errors = weights * (e * delta.abs() + (1 + e) * of_delta) + _SMALLEST
        rows.of(self._errors)[:] = errors[..., 0]

    def result(self) -> tuple[Tensor, Tensor]:
        count = self._terms[:, 0].numel()
        sizes = (self._terms.abs() + self._errors).sum((0, 2))
        return -self._terms.sum((0, 2)), self._errors.sum((0, 2)) + (count + 2) * _U * sizes


def _add(
    rows: Rows,
    rounded_o: Tensor,
    d_o: Tensor,
    d_lse: Tensor,
    scale: float,
    sums: tuple[_Sums, _Sums, _Sums],
    dtype: torch.dtype,
) -> Tensor:
    """Adds the terms of these rows to dq, dk and dv, in the module docstring's notation, without the factor
    scale; values per query are columns (h, n, 1). Returns the error of delta.
    """
    dq, dk, dv = sums
    p, d = rows.p, rows.q.shape[-1]
    products = d_o * rows.o
    gap = d_o @ rows.v.mT - (products.sum(-1, keepdim=True) - d_lse)  # dP - delta
    of_sum = 1.25 * _truncation(dtype) * d * _U
    logits = of_sum * scale * (rows.q.abs() @ rows.k.abs().mT)
    e = rows.logit_errors(logits, rows.finite_lse)
    h = of_sum * (d_o.abs() @ rows.v.abs().mT)
    of_delta = (d_o * (rounded_o - rows.o)).sum(-1, keepdim=True).abs()
    of_delta += _U * ((d + 2) * products.abs().sum(-1, keepdim=True) + 2 * d_lse.abs())
    small_ds = (p > 0) * (_F16_SUBNORMAL if dtype == torch.float16 else _SMALLEST)
    small_p = (p > 0) * (_SMALLEST if dtype == torch.float32 else _F16_SUBNORMAL)
    slope, of_slope = _slope(rows, logits, scale)
    sloped = p * slope  # 1 without a softcap
    of_ds = sloped * (e * (gap.abs() + h + of_delta) + h) + small_p * gap.abs() + small_ds
    of_ds = of_ds + p * (1 + e) * of_slope * (gap.abs() + h + of_delta)
    dq.add(rows.of, sloped * gap, rows.k, of_ds)
    roundings = 2 * _ROUNDING[dtype] * (sloped @ rows.k.abs())
    rows.of(dq.errors).add_(of_delta * ((sloped @ rows.k).abs() + roundings))
    dk.add(rows.of_keys, (sloped * gap).mT, rows.q, (of_ds + sloped * of_delta).mT)
    dv.add(rows.of_keys, p.mT, d_o, (p * e + small_p).mT)
    return of_delta


def _slope(rows: Rows, of_products: Tensor, scale: float) -> tuple[Any, Any]:
    """1 - t^2 with its error, or 1 with none; ``of_products`` is the error of the logits' products."""
    if rows.softcap is None:
        return 1.0, 0.0
    square = (rows.s / rows.softcap).square().masked_fill(rows.s == -math.inf, 1.0)
    raw = scale * (rows.q @ rows.k.mT).abs()
    slope = 1.0 - square
    of_log = _U * (6 * rows.softcap + 6 * rows.finite_lse.abs() + 16)
    of_x = of_products + 3 * _U * raw
    return slope, 2 * TANH_ERROR * square + 4 * _U + 2 / rows.softcap * (slope * of_x + of_log)


def _truncation(dtype: torch.dtype) -> int:
    return 1 if dtype == torch.float32 else 2
