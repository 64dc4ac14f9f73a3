"""Explains a wrong row of a sum over keys, or over queries, by the terms that it lacks, has too many of, or
has with a wrong factor.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from ladder.common.wording import said

#: Sums of more terms are not searched, which would take too long.
_MOST_TERMS = 2048
#: A row of less than this share of its terms is no row that a kernel makes.
_LEAST_SHARE = 1e-6
#: How many terms one after the other those that share a sum may take at once.
_STEPS = (8, 16, 32, 64)
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
    if not _is_searched(error, seen):
        return ""
    for says, terms, wanted, of_divisor in (
        (said("without {}"), seen, -error, shares),
        (said("with {}, which the mask hides"), hidden, error, None),
        (said("where {} count twice"), seen, error, None),
    ):
        there = _range(terms, wanted, _limit(error, tolerance), of_divisor)
        if there is not None:
            return says.format(_named(there, words))
    return "" if shares is not None else _share_of_terms(error, seen, _limit(error, tolerance), words)


def _share_of_terms(error: Tensor, seen: Tensor, limit: float, words: tuple[str, str]) -> str:
    """Describes the terms that are wrong if they are those of one of several that share all; "" if not."""
    j, whole = torch.arange(len(seen)), seen.sum(0)
    for step, count in itertools.product(_STEPS, (2, 4, 8)):
        if len(seen) <= step:
            break
        parts = [seen[j // step % count == number].sum(0) for number in range(count)]
        for says, times, of_whole in (
            (said("with {} alone"), 1, -1),
            (said("without {}"), -1, 0),
            (said("where {} count twice"), 1, 0),
            (said("where all but {} count twice"), -1, 1),
        ):
            for number, part in enumerate(parts):
                if float((times * part + of_whole * whole - error).abs().max()) <= limit:
                    first = number * step
                    which = f"{said(words[1])} {first}-{first + step - 1}"
                    return says.format(said("{which} of every {period}", which=which, period=count * step))
    return ""


def range_of_others(
    error: Tensor, terms: Tensor, others: Tensor, tolerance: float, words: tuple[str, str]
) -> str:
    """Names the terms, one after the other, for which those of ``others`` (n, d) stand; "" if it is not by
    such a range that the row is wrong.
    """
    if not _is_searched(error, terms):
        return ""
    there = _range(others - terms, error, _limit(error, tolerance))
    return "" if there is None else _named(there, words)


def factor_of_first_terms(
    error: Tensor, terms: Tensor, tolerance: float, words: tuple[str, str], shares: Tensor | None = None
) -> str:
    """Describes by which factor the first terms, up to some number, are in a wrong row: "where keys 0-63
    count 2.5 times"; "" if it is not that. ``shares`` are as for :func:`range_of_terms`.
    """
    if not _is_searched(error, terms) or len(terms) < 2:
        return ""
    first = terms.cumsum(0)[:-1]
    # What is too much of the first terms is the whole error.
    extra = (first * error).sum(1) / (first * first).sum(1).clamp_min(1e-30)
    off = (error - extra[:, None] * first).abs().amax(1)
    impossible = extra < -1
    if shares is not None:
        left = 1 + extra * shares.cumsum(0)[:-1]
        off, impossible = off / left, impossible | (left < _LEAST_SHARE)
    off = off.masked_fill(impossible | off.isnan(), math.inf)
    last = int(off.argmin())
    if float(off[last]) > _limit(error, tolerance):
        return ""
    there = (terms[: last + 1].abs().amax(1) > 0).nonzero().flatten()
    which, factor = _named(there, words), 1 + float(extra[last])
    return said("where {which} count {factor:.3g} times", which=which, factor=factor)


def _is_searched(error: Tensor, terms: Tensor) -> bool:
    return 0 < len(terms) <= _MOST_TERMS and bool(error.isfinite().all())


def _limit(error: Tensor, tolerance: float) -> float:
    """How far an explanation may be off in each element of a row that is wrong by ``error``."""
    return min(tolerance, float(error.abs().max()) / 4)


def _range(terms: Tensor, wanted: Tensor, limit: float, shares: Tensor | None = None) -> Tensor | None:
    """The numbers of the terms, one after the other, whose sum is ``wanted``; None if there are none."""
    off = _distances(terms, wanted, shares)
    first, end = divmod(int(off.argmin()), len(off))
    if float(off[first, end]) > limit:
        return None
    return (terms[first:end].abs().amax(1) > 0).nonzero().flatten() + first


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
    return f"{said(words[0])} {first}" if first == last else f"{said(words[1])} {first}-{last}"
