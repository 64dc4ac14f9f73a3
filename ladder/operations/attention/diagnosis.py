"""Describes what is wrong with an output: which heads, rows, columns and threads, and which values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ladder.common.wording import said
from ladder.common.words import MOST, describe, numbers, told_apart
from ladder.operations.attention.problem import Problem
from ladder.operations.attention.reference import AttentionReference
from ladder.operations.attention.slips import keys_of_o, slip_of_lse, slip_of_o
from ladder.operations.base import never_written


def diagnose(
    problem: Problem, o: Tensor, lse: Tensor, reference: AttentionReference, owner: str
) -> list[str]:
    """Describes in sentences what is wrong with o (B, H, N, d) and lse (B, H, N); empty if both are right.

    ``owner`` says what holds a row: a ``thread``, or the ``fragments`` of a warp.
    """
    bad_o = ~((o.double() - reference.o).abs() <= reference.limits["o"])
    bad_lse = ~((lse.double() - reference.lse).abs() <= reference.lse_bound)
    sentences = []
    if bad_o.any():
        besides = "" if bad_lse.any() else said(", lse is right everywhere")
        sentences.append(
            said(
                "o is wrong in {n:,} of {count:,} elements{besides}.",
                n=int(bad_o.sum()),
                count=bad_o.numel(),
                besides=besides,
            )
        )
        sentences += where(bad_o.any(-1), "o")
        sentences += _columns(bad_o, owner)
        sentences += _holders(bad_o, owner)
        slip = slip_of_o(problem, o, reference)
        simple = [slip] if slip else _values_of_o(o, reference, bad_o)
        sentences += [*simple, first_wrong(o, reference.o, bad_o, "o")]
        # Keys tell in finite rows alone, also beside rows of NaN.
        finite = bad_o & torch.isfinite(o).all(-1, keepdim=True)
        if not simple or (not slip and finite.any() and not torch.isfinite(o).all()):
            sentences += _keys(problem, o, reference, finite, bad_lse) if finite.any() else []
    if bad_lse.any():
        besides = "" if bad_o.any() else said(", o is right everywhere")
        sentences.append(
            said(
                "lse is wrong in {n:,} of {count:,} rows{besides}.",
                n=int(bad_lse.sum()),
                count=bad_lse.numel(),
                besides=besides,
            )
        )
        if not bad_o.any() or not torch.equal(bad_lse, bad_o.any(-1)):
            sentences += where(bad_lse, "lse")
        slip = "" if bad_o.any() else slip_of_lse(problem, lse, reference)
        sentences += [slip] if slip else _values_of_lse(lse, reference, bad_lse)
        sentences.append(first_wrong(lse, reference.lse, bad_lse, "lse"))
    return sentences


def _keys(
    problem: Problem, o: Tensor, reference: AttentionReference, bad_o: Tensor, bad_lse: Tensor
) -> list[str]:
    """Describes the keys by which two rows are wrong; without any, what follows from an lse that is right.
    ``bad_o`` has at least one wrong element.
    """
    # Under a causal mask most keys are hidden from the first row, and the last one sees the most.
    batch, head = bad_o.nonzero()[0, :2].tolist()
    rows = bad_o[batch, head].any(-1).nonzero().flatten()
    sentences = []
    for row in dict.fromkeys((int(rows[0]), int(rows[-1]))):
        place, is_right = (batch, head, row), not bool(bad_lse[batch, head, row])
        keys = keys_of_o(problem, o, reference, place, lse_is_right=is_right)
        if keys:
            sentences.append(
                said("Row {row} of head {head} equals the result {keys}.", row=row, head=head, keys=keys)
            )
    if sentences or bad_lse.any():
        return sentences
    return [
        said(
            "The scores and l are right: look at the product P V, at what rescales o, and at where it "
            "is stored."
        )
    ]


def where(bad_rows: Tensor, name: str) -> list[str]:
    """Describes the heads and rows of a (B, H, N) mask of wrong elements."""
    sentences = []
    batch, heads, rows = bad_rows.shape
    of_batch, of_head = _indices(bad_rows.any(2).any(1)), _indices(bad_rows.any(2).any(0))
    if len(of_batch) == 1 < batch:
        sentences.append(said("Only batch {which} of {count} is wrong.", which=of_batch[0], count=batch))
    elif len(of_batch) < batch:
        sentences.append(
            said("Only batches {which} of {count} are wrong.", which=numbers(of_batch), count=batch)
        )
    if len(of_head) == 1 < heads:
        sentences.append(said("Only head {which} of {count} is wrong.", which=of_head[0], count=heads))
    elif len(of_head) < heads:
        sentences.append(
            said("Only heads {which} of {count} are wrong.", which=numbers(of_head), count=heads)
        )
    pattern = describe(_indices(bad_rows.any(1).any(0)), rows)
    sentences.append(said("Wrong rows of {name}: {which}.", name=name, which=pattern))
    return sentences


def _columns(bad: Tensor, owner: str) -> list[str]:
    wrong = _indices(bad.flatten(0, 2).any(0))
    columns = bad.shape[-1]
    if len(wrong) == columns:
        return []
    sentence = said("Wrong columns: {which}.", which=describe(wrong, columns))
    lanes = sorted({column % 8 // 2 for column in wrong})
    if owner == "fragments" and len(lanes) < 4:
        sentence += said(" In a fragment these are the lanes with lane % 4 = {which}.", which=numbers(lanes))
    return [sentence]


def _holders(bad: Tensor, owner: str) -> list[str]:
    """Names the threads or warps that hold the wrong rows, unless all do."""
    rows = _indices(bad.any(-1).flatten(0, 1).any(0))
    if owner == "thread":
        return [said("Row r belongs to thread r % blockDim.x.")] if len(rows) < bad.shape[2] else []
    of_tile = sorted({row % 16 for row in rows})
    halves = sorted({row // 8 for row in of_tile})
    if len(of_tile) == 16 or bad.shape[2] < 16:
        return []
    sentences = []
    if len(halves) == 1:
        element = (said("elements 0 and 1"), said("elements 2 and 3"))[halves[0]]
        sentences.append(
            said("Of a warp's 16 rows these are in {elements} of every accumulator.", elements=element)
        )
    in_eight = sorted({row % 8 for row in of_tile})
    if len(in_eight) < 8:
        lanes = [lane for row in in_eight for lane in range(4 * row, 4 * row + 4)]
        sentences.append(said("They are held by the lanes {which}.", which=numbers(lanes)))
    return sentences


def _values_of_o(o: Tensor, reference: AttentionReference, bad: Tensor) -> list[str]:
    unwritten, computed = never_written(o), torch.isnan(o) & ~never_written(o)
    sentences = []
    if unwritten.any():
        rows = _indices(unwritten.any(-1).flatten(0, 1).any(0))
        everywhere = (
            "" if len(rows) == o.shape[2] else said(", in rows {which}", which=describe(rows, o.shape[2]))
        )
        sentences.append(
            said(
                "{n:,} elements are never written: they still hold the NaN that o is filled with before the "
                "launch{where}.",
                n=int(unwritten.sum()),
                where=everywhere,
            )
        )
    if computed.any():
        sentences.append(
            said(
                "{n:,} elements are computed as NaN: inf - inf, 0 * inf or 0 / 0, or a NaN of memory "
                "that was read and never written.",
                n=int(computed.sum()),
            )
        )
    if torch.isinf(o).any():
        sentences.append(
            said("{n:,} elements are infinite: exp of a large logit, or x / 0.", n=int(torch.isinf(o).sum()))
        )
    if not sentences:
        zero = bad & (o == 0)
        if zero.sum() > MOST * bad.sum():
            sentences.append(said("The wrong elements are 0."))
        else:
            sentences += _factor(o, reference) or _permutation(o, reference, bad)
    return sentences


def _factor(o: Tensor, reference: AttentionReference) -> list[str]:
    """Reports if each row is the right one times a factor."""
    got, wanted = o.double().flatten(0, 2), reference.o.flatten(0, 2)
    factor = (got * wanted).sum(1) / (wanted * wanted).sum(1).clamp_min(1e-30)
    rest = (got - factor[:, None] * wanted).norm(dim=1) / got.norm(dim=1).clamp_min(1e-30)
    off = (factor - 1).abs() > 0.01
    if not off.any() or rest[off].max() > 0.02:
        return []
    values = factor[off]
    if values.max() - values.min() < 0.01 * values.abs().max():
        return [said("The wrong rows are the right ones times {factor:.4g}.", factor=float(values.mean()))]
    return [
        said(
            "Each wrong row is the right row times a factor of its own ({least:.4g} to {most:.4g}): the "
            "ratios of its weights are right, and the divisor of its weights is wrong.",
            least=float(values.min()),
            most=float(values.max()),
        )
    ]


def _permutation(o: Tensor, reference: AttentionReference, bad: Tensor) -> list[str]:
    """Reports if each wrong row, or column, contains the values of exactly one other.

    Rows can be too similar to tell which one it is, for instance if one key dominates.
    """
    for axis in (2, 3):
        if bad.shape[axis] > 1024:
            continue
        got = o.double().movedim(axis, 0).flatten(1)
        wanted = reference.o.movedim(axis, 0).flatten(1)
        distance = torch.cdist(got, wanted, p=math.inf)
        if distance.shape[1] < 2:
            continue
        (first, second), (nearest, _) = ((x[:, 0], x[:, 1]) for x in distance.topk(2, 1, largest=False))
        tolerance = 4 * reference.error_bound
        is_other = (first <= tolerance) & (second > 2 * tolerance) & (nearest != torch.arange(len(got)))
        wrong = bad.movedim(axis, 0).flatten(1).any(1)
        moved = _indices(is_other & wrong)
        if len(moved) > 1 and len(moved) >= MOST * int(wrong.sum()):
            holds = said("row {i} holds row {j}") if axis == 2 else said("column {i} holds column {j}")
            pairs = [holds.format(i=i, j=int(nearest[i])) for i in moved[:3]]
            if len(moved) > 3:
                pairs.append(said("and so on for {n} of them", n=len(moved)))
            return [said("The values are right but in the wrong place: {pairs}.", pairs=", ".join(pairs))]
    return []


def _values_of_lse(lse: Tensor, reference: AttentionReference, bad: Tensor) -> list[str]:
    unwritten, computed = never_written(lse), torch.isnan(lse) & ~never_written(lse)
    sentences = []
    if unwritten.any():
        sentences.append(said("{n:,} of lse are never written.", n=int(unwritten.sum())))
    if computed.any():
        sentences.append(
            said("{n:,} of lse are computed as NaN: log of a negative, inf - inf, ...", n=int(computed.sum()))
        )
    if sentences:
        return sentences
    got, wanted = lse.double()[bad], reference.lse[bad]
    ratio = got / torch.where(wanted == 0, 1.0, wanted)
    for value, what in (
        (1 / math.log(2), said("log2 where it should be the natural log")),
        (math.log(2), "ln 2"),
    ):
        if (ratio - value).abs().max() < 1e-3:
            sentences.append(said("It is the right value times {value:.4f}: {what}.", value=value, what=what))
    difference = got - wanted
    if not sentences and difference.max() - difference.min() < 1e-3:
        sentences.append(
            said("It differs by {value:.4g} in every wrong row.", value=float(difference.mean()))
        )
    return sentences


def first_wrong(got: Tensor, wanted: Tensor, bad: Tensor, name: str) -> str:
    """Describes the first element of ``name`` for which the mask is set."""
    place = [int(i) for i in bad.nonzero()[0]]
    words = (said("batch {i}"), said("head {i}"), said("row {i}"), said("column {i}"))
    at = ", ".join(word.format(i=i) for word, i in zip(words, place, strict=False))
    values = told_apart(float(got[tuple(place)]), float(wanted[tuple(place)]))
    return first_wrong_text(name, at, values)


def first_wrong_text(name: str, at: str, values: tuple[str, str]) -> str:
    """Says what an element is and what it should be."""
    return said(
        "The first wrong one: {name} at {at} is {got}, should be {wanted}.",
        name=name,
        at=at,
        got=values[0],
        wanted=values[1],
    )


def _indices(mask: Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero().flatten()]
