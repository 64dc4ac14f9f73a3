"""Limits of the errors of all elements of o together, in the notation of
:mod:`ladder.operations.attention.reference`.

The limit of an element is several times its usual error, so a kernel that rounds too often, or whose l is a
little off, stays below the limits of all elements. But roundings are independent, so the errors of all
elements together have narrow limits (:class:`ladder.operations.base.Spread`). Rounding a number w to 16 bits
errs by a number that is uniform between -r w and r w, or less: its variance is at most (r w)^2 / 3. r is u_T,
but in f16, and for keys and values with factors, at least 2^-25 / w, as long as that is below 1. r_j is that
of the weight before the division by l, w_j = exp(s_j - m), and r_o that of o_x. A sum of n products errs by
E(n) = u (n / 8 + 2 n^(1/2)) of its largest partial sum: tensor cores truncate it in steps of 8 or more, each
time towards 0 and by u in the mean, and roundings of either sign add up to no more than 2 n^(1/2). So the
error of o_x has a standard deviation of at most

    D_x = 3^(-1/2) (sum_j (r_j p_j)^2 (v_jx^2 + o_x^2) + (r_o o_x)^2)^(1/2)
          + |p c'| + E(n) |p| + u (2 n^(1/2) + 8) |o_x|

with c' as c, and E(d) A_j in place of 5/4 t d u A_j in e_j. With the number of keys, it grows as |o_x| does;
only E(n) grows faster, and reaches u_T of bf16 at n = 500,000. A kernel that also rounds o to 16 bits at each
of T tiles adds about T / 2 times the variance of the last rounding.

Two means are limited. That of (error / D)^2 over all elements is sum_j b_j z_j^2 in a row, with b_j = (r_j
p_j)^2 / sum_i (r_i p_i)^2, where z_j is the error of weight j in units of its deviation; different elements
of v add 2 / d to its variance. That of <error, o> / <o, o> over the rows, by which o as a whole is too large,
is sum_j a_j z_j r_j / 3^(1/2) in a row, with a_j = p_j <v_j, o> / <o, o>; roundings of o add sum_x (r_o
o_x^2)^2 / 3 / <o, o>^2 to its variance, and what all weights of a row err together adds u (n / 8 + 2 n^(1/2)
+ 8) + sum_j p_j e_j' to the mean.

z_j follows from the place of w_j between the two next numbers of 16 bits. Where places are many, z_j is as
good as random. They are few if logits are equal, or differ by less than u_T: with tiny scales, or in the
flat parts of tanh. Kernels may subtract another number than m, which moves all places of a row. So the two
sums are computed from the w_j, for :data:`_PLACES` such moves. If all rows move alike, each mean is at most
the largest of those; otherwise it varies from row to row as the sums do from move to move. Both are allowed:
the largest mean, plus 7 deviations of the mean of as many rows as are different. Weights of logits that are m
are 1 exactly, or rounded for themselves; but with a sink or a softcap, a kernel may subtract that, or a
number that depends on it, from all of them.
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
)
from ladder.operations.base import Spread

#: Between two numbers of 16 bits, so many places are told apart.
_PLACES = 32
#: frexp's exponent of the largest numbers of f16 that are subnormal.
_F16_SUBNORMAL_EXPONENT = -14
#: Rows that are this much larger than their errors, as the square of both, can be compared as a whole; fp32
#: holds terms of 2**-24 of them as normal numbers.
_CERTAIN, _SMALLEST_NORM = 1000, 2.0**-100


class SpreadOfRows:
    """Makes the :class:`Spread` of o (B, H, N, d), whose rows are added in parts."""

    def __init__(self, o: Tensor, dtype: torch.dtype) -> None:
        self._o, self._dtype, self._rounding = o, dtype, ROUNDING[dtype]
        self._deviations = torch.empty_like(o)
        self._certain = torch.empty(o.shape[:3], dtype=torch.bool, device=o.device)
        of_place = _of_places(o.device)
        self._squares, self._gains = _Mean(3 * of_place.square() - 1), _Mean(of_place)
        self._common = 0.0

    def add(self, rows: Rows, products: Tensor) -> None:
        """``products`` are the A_j (h, n, M)."""
        o, p, n, d = rows.o, rows.p, rows.n, rows.o.shape[-1]
        weights, places = self._weights(rows)
        squares = (weights * p).square()
        total = squares.sum(-1, keepdim=True)
        of_o = self._rounding * o.abs()
        of_o = of_o.clamp_min(F16_SUBNORMAL) if self._dtype == torch.float16 else of_o
        of_p = self._rounding**2 * (squares @ rows.v.square() + total * o.square())
        rounded = ((of_p + of_o.square()) / 3).sqrt()
        small = SMALLEST * (1 + n.sqrt() * torch.exp(rows.m - rows.finite_lse))
        e_j = rows.logit_errors(_of_sum(d) * products, rows.m)
        e = rows.error_of_sums(e_j)
        summed = (p * (e_j + e - 2 * p * e_j)).norm(dim=-1, keepdim=True)
        summed = summed + _of_sum(n) * p.norm(dim=-1, keepdim=True) + U * (2 * n.sqrt() + 8) * o.abs()
        deviations = rounded + small + summed
        size = o.square().sum(-1, keepdim=True)
        certain = size > _CERTAIN * deviations.square().sum(-1, keepdim=True)
        certain &= size > _SMALLEST_NORM**2
        rows.of(self._deviations)[:], rows.of(self._certain)[:] = deviations, certain[..., 0]

        every, of_v = torch.ones_like(certain), torch.full_like(total, 2 / d)
        self._squares.add((squares / total).nan_to_num(), places, of_v, every)
        of_roundings = (of_o * o).square().sum(-1, keepdim=True) / (3 * size.square())
        shares = p * (o @ rows.v.mT) / size
        self._gains.add(self._rounding * weights * shares, places, of_roundings, certain)
        self._common += float((_of_sum(n) + 8 * U + e)[certain].sum())

    def _weights(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """r_j / u_T (h, n, M), and where between two numbers of 16 bits w_j lies (h, n, M), as one of
        :data:`_PLACES`; -1 if it is rounded for itself.
        """
        w = torch.exp(rows.s - rows.m)
        if self._dtype == torch.float32:
            return torch.ones_like(w), torch.full(w.shape, -1, device=w.device)
        mantissa, exponent = torch.frexp(w)
        place, coarser = mantissa / self._rounding, torch.ones_like(w)
        if rows.scaled or self._dtype == torch.float16:
            coarser = (F16_SUBNORMAL / w).clamp(self._rounding, 1) / self._rounding
        if self._dtype == torch.float16:
            place = torch.where(exponent <= _F16_SUBNORMAL_EXPONENT, w / (2 * F16_SUBNORMAL), place)
        place = (place.frac() * _PLACES).long()
        if rows.sink is None and rows.softcap is None:
            place.masked_fill_(rows.s.float() == rows.m.float(), -1)
        return coarser, place

    def result(self) -> Spread:
        rounded = self._o[..., :2].to(self._dtype)
        moved, deviation = self._squares.result(_different(rounded.flatten(0, -2)))
        mean_square = 1 + max(0.0, float(moved.max())) + DEVIATIONS * deviation
        moved, deviation = self._gains.result(_different(rounded[self._certain]))
        gain = self._common / max(1, self._gains.rows) + float(moved.abs().max()) + DEVIATIONS * deviation
        return Spread(self._deviations, mean_square, self._certain, gain)


class _Mean:
    """Of sums over keys of shares times a function of the weight's place, (moves, places): the mean over
    rows, and its variance.
    """

    def __init__(self, of_place: Tensor) -> None:
        self._of_place, self._variance_alone = of_place.mT, float(of_place.square().mean())
        self._sums, self._variance, self.rows = torch.zeros_like(of_place[:, 0]), 0.0, 0

    def add(self, shares: Tensor, places: Tensor, variance: Tensor, counted: Tensor) -> None:
        """Adds the rows that are ``counted`` (h, n, 1); ``variance`` (h, n, 1) is what else there is. Shares
        and places are (h, n, M).
        """
        alone = places < 0
        by_place = shares.new_zeros((*shares.shape[:2], _PLACES))
        by_place.scatter_add_(-1, places.clamp_min(0), shares.masked_fill(alone, 0))
        sums = by_place @ self._of_place
        variance = variance + sums.square().mean(-1, keepdim=True)
        variance += self._variance_alone * (shares.square() * alone).sum(-1, keepdim=True)
        self._sums += sums[counted[..., 0]].sum(0)
        self._variance += float(variance[counted].sum())
        self.rows += int(counted.sum())

    def result(self, different: int) -> tuple[Tensor, float]:
        """The mean for each move, and the deviation of the mean of so many ``different`` rows."""
        rows = max(1, self.rows)
        return self._sums / rows, math.sqrt(self._variance / rows / max(1, different))


def _different(rows: Tensor) -> int:
    """How many rows (R, n) there are that are not rounded alike, and so err alike."""
    return len(torch.unique(rows, dim=0))


def _of_places(device: torch.device) -> Tensor:
    """The error of rounding, as a part of the largest one, (moves, places)."""
    steps = torch.arange(_PLACES, dtype=torch.float64, device=device)
    return 1 - 2 * ((steps[:, None] + steps + 0.5) / _PLACES).frac()


def _of_sum(n: Any) -> Any:
    """E(n), of a number or a tensor."""
    return U * (n / 8 + 2 * n**0.5)
