"""Describes what is wrong with HSTU attention's output: in which sequences and rows, and by what slip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.common.wording import said
from ladder.common.words import describe, numbers, told_apart
from ladder.operations.attention.diagnosis import first_wrong_text
from ladder.operations.base import Reference, is_wrong_text, known_values, never_written
from ladder.operations.hstu.problem import HstuProblem
from ladder.operations.hstu.reference import JaggedSequence, sequences
from ladder.operations.terms import KEYS, range_of_others, range_of_terms

#: A slip's weights (H, n, m) of one sequence, from its products q k^T (H, n, m) in float64.
_Weights = Callable[[JaggedSequence, Tensor], Tensor]


def diagnose(problem: HstuProblem, inputs: Mapping[str, Any], o: Tensor, reference: Reference) -> list[str]:
    """Describes what is wrong with o (total_q, H, d); empty if it is right."""
    exact, bound = reference.outputs["o"], reference.bounds["o"]
    bad = ~((o.double() - exact).abs() <= bound)
    if not bad.any():
        return []
    sentences = [is_wrong_text("o", bad)]
    found = list(sequences(problem, inputs))
    sentences += where(bad, [(one.number, one.queries) for one in found])
    first = next(one for one in found if bool(bad[one.queries].any()))
    known = _slip(problem, inputs, found, o, 4 * bound)
    known_here = [known] if known else known_values(o, exact, bad)
    if problem.page_size and bool((o.isnan() & ~never_written(o)).any()):
        known_here.append(
            said("With pages, k and v are NaN but for the targets, and so is a last page past its last key.")
        )
    row, head, column = (int(place) for place in bad[first.queries].nonzero()[0])
    got, wanted = (x[first.queries][:, head].double() for x in (o, exact))
    texts = told_apart(float(got[row, column]), float(wanted[row, column]))
    place = said(
        "sequence {number}, row {row}, head {head}, column {column}",
        number=first.number,
        row=row,
        head=head,
        column=column,
    )
    sentences += [*known_here, first_wrong_text("o", place, texts)]
    return sentences if known_here else [*sentences, *_rows(problem, inputs, first, head, o, reference, bad)]


def _rows(
    problem: HstuProblem,
    inputs: Mapping[str, Any],
    one: JaggedSequence,
    head: int,
    o: Tensor,
    reference: Reference,
    bad: Tensor,
) -> Iterator[str]:
    """Describes what the first and the last wrong row of a head come of: most keys are hidden from the first
    one, and the last one mostly sees the most.
    """
    exact, bound = reference.outputs["o"], reference.bounds["o"]
    rows = bad[one.queries][:, head].any(1).nonzero().flatten()
    got, error = o[one.queries][:, head].double(), (o.double() - exact)[one.queries][:, head]
    for row in dict.fromkeys((int(rows[0]), int(rows[-1]))):
        says = _keys(problem, one, row, head, error[row], bound)
        says = says or _bias(problem, inputs, one, row, head, got[row], bound)
        if says:
            yield said(
                "Row {row} of it, head {head}, equals the result {says}.", row=row, head=head, says=says
            )


def _keys(problem: HstuProblem, one: JaggedSequence, row: int, head: int, error: Tensor, bound: float) -> str:
    """Describes the keys by which this row of o is wrong; "" if it is not by some that follow each other."""
    s = one.k[:, head].double() @ one.q[row, head].double()
    if one.bias is not None:
        s += one.bias[head if len(one.bias) > 1 else 0, row].double()
    values = one.v[:, head].double() / problem.length
    terms, seen = F.silu(problem.factor * s)[:, None] * values, one.seen[row, :, None].double()
    says = range_of_terms(error, terms * seen, terms * (1 - seen), bound, KEYS)
    if says:
        return says
    keys = range_of_others(error, torch.zeros_like(values), values * (1 - seen), bound, KEYS)
    return said("where {keys}, which the mask hides, have the weight 1", keys=keys) if keys else ""


def _bias(
    problem: HstuProblem,
    inputs: Mapping[str, Any],
    one: JaggedSequence,
    row: int,
    head: int,
    got: Tensor,
    bound: float,
) -> str:
    """Says so if the row of o has the bias of another position, or none; "" if not."""
    if one.bias is None:
        return ""
    m = one.k.shape[0]
    biases = inputs["rab"][one.number, head if len(one.bias) > 1 else 0, :m, :m].double()
    biases = torch.cat([biases, torch.zeros_like(biases[:1])])
    s = one.k[:, head].double() @ one.q[row, head].double() + biases
    rows = F.silu(problem.factor * s) * one.seen[row] @ one.v[:, head].double() / problem.length
    off = (rows - got).abs().amax(1)
    position, found = m - one.q.shape[0] + row, int(off.argmin())
    if found == position or float(off[found]) > min(bound, float(off[position]) / 4):
        return ""
    if found == m:
        return said("without the bias")
    return said(
        "with the bias of position {found}; it is at position {position}", found=found, position=position
    )


def where(bad: Tensor, parts: Sequence[tuple[int, slice]], name: str = "") -> list[str]:
    """Describes the sequences, heads and rows of a (tokens, H, d) mask of wrong elements.

    ``parts`` are the sequences' numbers and tokens, ``name`` is the output's, if there are several.
    """
    sentences = []
    wrong = [(number, bad[tokens]) for number, tokens in parts if bool(bad[tokens].any())]
    which = numbers(number for number, _ in wrong)
    if len(wrong) == 1 < len(parts):
        sentences.append(said("Only sequence {which} of {count} is wrong.", which=which, count=len(parts)))
    elif len(wrong) < len(parts):
        sentences.append(said("Only sequences {which} of {count} are wrong.", which=which, count=len(parts)))
    heads = [int(h) for h in bad.any(2).any(0).nonzero().flatten()]
    if len(heads) < bad.shape[1]:
        sentences.append(said("Wrong heads: {which}.", which=describe(heads, bad.shape[1])))
    number, first = wrong[0]
    rows = [int(r) for r in first.any(2).any(1).nonzero().flatten()]
    pattern = describe(rows, len(first))
    if name:
        text = said(
            "Wrong rows of {name} in sequence {number}: {which}.", name=name, number=number, which=pattern
        )
    else:
        text = said("Wrong rows of sequence {number}: {which}.", number=number, which=pattern)
    return [*sentences, text]


def _slip(
    problem: HstuProblem, inputs: Mapping[str, Any], found: list[JaggedSequence], o: Tensor, tolerance: float
) -> str:
    """Describes the slip that produces o; "" if it is none of the known ones."""
    for says, weights in _slips(problem, has_bias=inputs["rab"] is not None):
        if all(_is_close(o[one.queries], one, weights, problem.length, tolerance) for one in found):
            return said("It equals the result {says}.", says=says)

    def right(one: JaggedSequence, s: Tensor) -> Tensor:
        bias = 0.0 if one.bias is None else one.bias.double()
        return F.silu(problem.factor * (s + bias)) * one.seen

    with_k = [replace(one, v=one.k) for one in found]
    if all(_is_close(o[one.queries], one, right, problem.length, tolerance) for one in with_k):
        return said("It equals the result where K stands for V.")
    return ""


def _is_close(got: Tensor, one: JaggedSequence, weights: _Weights, length: int, tolerance: float) -> bool:
    s = torch.einsum("nhd,mhd->hnm", one.q.double(), one.k.double())
    wanted = torch.einsum("hnm,mhd->nhd", weights(one, s), one.v.double()) / length
    size = float(wanted.abs().max()) if wanted.numel() else 0.0
    return bool(((got.double() - wanted).abs() <= tolerance + 2.0**-9 * size).all())


def _slips(problem: HstuProblem, *, has_bias: bool) -> Iterator[tuple[str, _Weights]]:
    alpha, bias = problem.factor, _bias_of

    def masked(one: JaggedSequence, s: Tensor, seen: Tensor | bool) -> Tensor:
        return F.silu(alpha * (s + bias(one))) * seen

    yield said("without the mask"), lambda one, s: masked(one, s, True)
    yield (
        said("where query i stands at position i: the queries are the last of their sequence's tokens"),
        lambda one, s: masked(one, s, _ahead(one) <= one.q.shape[0] - one.k.shape[0]),
    )
    yield said("where a query sees the key after its own"), lambda one, s: masked(one, s, _ahead(one) <= 1)
    yield (
        said("where a query does not see its own key"),
        lambda one, s: masked(one, s, one.seen & (_ahead(one) != 0)),
    )
    yield said("with the causal mask alone"), lambda one, s: masked(one, s, _ahead(one) <= 0)
    yield (
        said("where the logits are not multiplied by alpha"),
        lambda one, s: F.silu(s + bias(one)) * one.seen,
    )
    yield (
        said("where the logits are multiplied by alpha twice"),
        lambda one, s: F.silu(alpha**2 * (s + bias(one))) * one.seen,
    )
    yield (
        said("where the logits are the weights: silu is left out"),
        lambda one, s: alpha * (s + bias(one)) * one.seen,
    )
    yield (
        said("where the weights are the sigmoid of the logits, not silu"),
        lambda one, s: torch.sigmoid(alpha * (s + bias(one))) * one.seen,
    )
    if has_bias:
        yield from _slips_of_bias(alpha)


def _slips_of_bias(alpha: float) -> Iterator[tuple[str, _Weights]]:
    bias = _bias_of
    yield said("without the bias"), lambda one, s: F.silu(alpha * s) * one.seen
    yield (
        said("where the bias is not multiplied by alpha"),
        lambda one, s: F.silu(alpha * s + bias(one)) * one.seen,
    )
    yield (
        said("where the bias is multiplied by alpha twice"),
        lambda one, s: F.silu(alpha * s + alpha**2 * bias(one)) * one.seen,
    )
    yield (
        said("where the bias is added twice"),
        lambda one, s: F.silu(alpha * (s + 2 * bias(one))) * one.seen,
    )
    yield said("where the bias is subtracted"), lambda one, s: F.silu(alpha * (s - bias(one))) * one.seen


def _bias_of(one: JaggedSequence) -> Tensor | float:
    return 0.0 if one.bias is None else one.bias.double().nan_to_num()


def _ahead(one: JaggedSequence) -> Tensor:
    """The distance by which each key is ahead of its query's position (n, m)."""
    n, m = one.q.shape[0], one.k.shape[0]
    return torch.arange(m) - torch.arange(m - n, m)[:, None]
