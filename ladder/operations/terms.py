"""Explains a wrong row of a sum over keys, or over queries, by the terms that it lacks or has too many of."""

from __future__ import annotations

import math

import torch
from torch import Tensor

#: Sums of more terms are not searched, which would take too long.
_MOST_TERMS = 2048
#: A row of less than this share of its terms is no row that a kernel makes.
_LEAST_SHARE = 1e-6
KEYS, QUERIES = ("key", "keys"), ("query", "queries")


def range_of_terms(
    error: Tensor,
    seen: Tensor,
    hidden: Tensor,
    tolerance: float,
    words: tuple[str, str],
    shares: Tensor | None = None,
) -> str:
    """Describes the terms, one after the other, by which a row is wrong: "without keys 64-127"; "" if it is
    not by such a range.

    ``error`` (d) is the row minus the right one, ``seen`` (n, d) holds the terms of the right row and zeros,
    ``hidden`` (n, d) those that the mask leaves out and zeros; ``tolerance`` is how far a right row may be
    off in each element. ``shares`` (n) are those of the seen terms in what the sum is divided by, if it is.
    All are float64.
    """
    if not 0 < len(seen) <= _MOST_TERMS or not bool(error.isfinite().all()):
        return ""
    size = float(error.abs().max())
    for says, terms, wanted, of_divisor in (
        ("without {}", seen, -error, shares),
        ("with {}, which the mask hides", hidden, error, None),
        ("where {} count twice", seen, error, None),
    ):
        off = _distances(terms, wanted, of_divisor)
        first, end = divmod(int(off.argmin()), len(off))
        if float(off[first, end]) <= min(tolerance, size / 4):
            there = (terms[first:end].abs().amax(1) > 0).nonzero().flatten() + first
            return says.format(_named(there, words))
    return ""


def _distances(terms: Tensor, wanted: Tensor, shares: Tensor | None) -> Tensor:
    """How far the sum of the terms from the row's number to before the column's is from ``wanted``, relative
    to the shares of all others.
    """
    sums = torch.cat([torch.zeros_like(terms[:1]), terms.cumsum(0)])
    off = torch.cdist(sums + wanted, sums, p=math.inf)
    impossible = torch.ones_like(off, dtype=torch.bool).tril()
    if shares is not None:
        before = torch.cat([shares.new_zeros(1), shares.cumsum(0)])
        left = 1 - (before - before[:, None])
        off, impossible = off / left, impossible | (left < _LEAST_SHARE)
    return off.masked_fill(impossible | off.isnan(), math.inf)


def _named(there: Tensor, words: tuple[str, str]) -> str:
    first, last = int(there[0]), int(there[-1])
    return f"{words[0]} {first}" if first == last else f"{words[1]} {first}-{last}"
