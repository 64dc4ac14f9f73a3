"""Describes what is wrong with HSTU attention's gradients: which ones, where, and by what slip."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ladder.common.wording import said
from ladder.common.words import told_apart
from ladder.operations.base import Reference, is_wrong_text, known_values, largest, rest_is_right
from ladder.operations.hstu.diagnosis import where
from ladder.operations.hstu.problem import HstuProblem
from ladder.operations.hstu.reference import JaggedSequence, sequences
from ladder.operations.terms import KEYS, QUERIES, range_of_terms


@dataclass(frozen=True)
class _Slip:
    """What stands for the weights and the gradient of the logits, (H, n, m) each, and for dK's and dV's
    second factors, (n, H, d) each.
    """

    says: str
    p: Tensor
    ds: Tensor
    q: Tensor
    d_o: Tensor


class _Pass:
    """The backward pass of one sequence in float64: logits ``s``, and without the mask the weights ``p``,
    their ``slope`` and ``dp`` (H, n, m), none of them with a factor but the logits.
    """

    def __init__(self, problem: HstuProblem, one: JaggedSequence, d_o: Tensor) -> None:
        self.one, self.q, self.k, self.d_o = one, one.q.double(), one.k.double(), d_o.double()
        bias = 0.0 if one.bias is None else one.bias.double()
        s = problem.factor * (torch.einsum("nhd,mhd->hnm", self.q, self.k) + bias)
        sigmoid = torch.sigmoid(s)
        self.p, self.slope = s * sigmoid, sigmoid * (1 + s * (1 - sigmoid))
        self.dp = torch.einsum("nhd,mhd->hnm", self.d_o, one.v.double())

    def slips(self) -> Iterator[_Slip]:
        """Yields known slips."""
        seen, q, d_o = self.one.seen, self.q, self.d_o
        p, slope = self.p * seen, self.slope * seen
        ds = slope * self.dp
        dp_of_k = torch.einsum("nhd,mhd->hnm", d_o, self.k)
        yield _Slip(
            said("where dP stands for dS: it is not multiplied by silu's slope"), p, self.dp * seen, q, d_o
        )
        yield _Slip(said("where dP is dO K^T, not dO V^T"), p, slope * dp_of_k, q, d_o)
        yield _Slip(said("where P stands for dS"), p, p, q, d_o)
        yield _Slip(said("where dS stands for P"), ds, ds, q, d_o)
        yield _Slip(said("where P stands for its slope"), p, p * self.dp, q, d_o)
        yield _Slip(said("where dK is made of dO instead of Q"), p, ds, d_o, d_o)
        yield _Slip(said("where dV is made of Q instead of dO"), p, ds, q, q)
        yield _Slip(said("where the slopes are not masked"), p, self.slope * self.dp, q, d_o)
        yield _Slip(said("where the weights are not masked"), self.p, ds, q, d_o)
        for says, other in (
            (said("without the mask"), torch.ones_like(seen)),
            (said("where the mask hides what it should leave, and leaves what it should hide"), ~seen),
            (said("where each query has the mask of the next one"), torch.cat([seen[1:], seen[-1:]])),
        ):
            yield _Slip(says, self.p * other, self.slope * other * self.dp, q, d_o)

    def gradients(self, slip: _Slip) -> dict[str, Tensor]:
        """Returns dq, dk and dv, without their factors."""
        return {
            "dq": torch.einsum("hnm,mhd->nhd", slip.ds, self.k),
            "dk": torch.einsum("hnm,nhd->mhd", slip.ds, slip.q),
            "dv": torch.einsum("hnm,nhd->mhd", slip.p, slip.d_o),
        }


def diagnose_gradients(
    problem: HstuProblem, inputs: Mapping[str, Any], outputs: Mapping[str, Tensor], reference: Reference
) -> list[str]:
    """Describes what is wrong with dq (total_q, H, d), dk and dv (total_k, H, d) and d_rab; empty if all are
    right. A slip that explains all that is wrong is said first.
    """
    wrong = reference.wrong(outputs)
    if not wrong:
        return []
    found = list(sequences(problem, inputs))
    known = _slip(problem, inputs, found, {name: outputs[name] for name in wrong}, reference)
    sentences = [*([known] if known else []), *rest_is_right(reference, wrong)]
    for name, of_name in wrong.items():
        got, exact = outputs[name], reference.outputs[name]
        sentences.append(is_wrong_text(name, of_name))
        if name != "d_rab":
            parts = [(one.number, one.queries if name == "dq" else one.keys) for one in found]
            sentences += where(of_name, parts, name)
        simple = [] if known else _simple(problem, name, got, of_name, reference)
        sentences += simple
        place = tuple(int(index) for index in of_name.nonzero()[0])
        texts = told_apart(float(got[place]), float(exact[place]))
        at = f"{name}[{', '.join(map(str, place))}]"
        sentences.append(
            said(
                "The first wrong one: {at} is {got}, should be {wanted}.",
                at=at,
                got=texts[0],
                wanted=texts[1],
            )
        )
        if not known and not simple and name != "d_rab":
            # A query's last row mostly has the most terms, a key's first.
            head, rows = place[1], of_name[:, place[1]].any(1).nonzero().flatten()
            token = int(rows[-1 if name == "dq" else 0])
            error = got[token, head].double() - exact[token, head]
            terms = _terms(problem, inputs, found, name, token, head, error, reference.bounds[name])
            if terms:
                sentences.append(
                    said("{at} equals the result {terms}.", at=f"{name}[{token}, {head}]", terms=terms)
                )
    return sentences


def _terms(
    problem: HstuProblem,
    inputs: Mapping[str, Any],
    found: list[JaggedSequence],
    name: str,
    token: int,
    head: int,
    error: Tensor,
    bound: float,
) -> str:
    """Describes the keys, or queries, by which the token's row (d) is wrong; "" if it is not by some that
    follow each other.
    """
    sides = [one.queries if name == "dq" else one.keys for one in found]
    one, side = next((one, side) for one, side in zip(found, sides, strict=True) if token < side.stop)
    row, whole = token - side.start, _Pass(problem, one, inputs["d_o"][one.queries])
    if name == "dq":
        weights, seen, factors = (whole.slope * whole.dp)[head, row], one.seen[row], whole.k[:, head]
    else:
        weights = (whole.p if name == "dv" else whole.slope * whole.dp)[head, :, row]
        seen, factors = one.seen[:, row], (whole.d_o if name == "dv" else whole.q)[:, head]
    terms = weights[:, None] * factors * _factors(problem)[name]
    kept = seen[:, None].double()
    words = KEYS if name == "dq" else QUERIES
    return range_of_terms(error, terms * kept, terms * (1 - kept), bound, words)


def _slip(
    problem: HstuProblem,
    inputs: Mapping[str, Any],
    found: list[JaggedSequence],
    outputs: Mapping[str, Tensor],
    reference: Reference,
) -> str:
    """Describes the slip that produces the wrong gradients; "" if it is none of the known ones."""
    names = [name for name in outputs if name != "d_rab"]
    factors = _factors(problem)
    passes = [_Pass(problem, one, inputs["d_o"][one.queries]) for one in found]
    for slips in zip(*(one.slips() for one in passes), strict=True):
        gradients = [one.gradients(slip) for one, slip in zip(passes, slips, strict=True)]
        wanted = {name: torch.cat([part[name] for part in gradients]) * factors[name] for name in names}
        if names and all(_explains(wanted[name], outputs[name], reference, name) for name in names):
            return said("It equals the result {says}.", says=slips[0].says)
    return ""


def _explains(wanted: Tensor, got: Tensor, reference: Reference, name: str) -> bool:
    """Whether a slip that produces ``wanted`` explains a wrong gradient. One that leaves it right does not,
    even if the gradient is only a little wrong.
    """
    bound = reference.bounds[name]
    return largest(wanted - reference.outputs[name]) > bound and _is_close(got, wanted, bound)


def _factors(problem: HstuProblem) -> dict[str, float]:
    """What multiplies the sums of each gradient."""
    of_logits = problem.factor / problem.length
    return {"dq": of_logits, "dk": of_logits, "dv": 1 / problem.length}


def _simple(problem: HstuProblem, name: str, got: Tensor, bad: Tensor, reference: Reference) -> list[str]:
    """Reports if another gradient is there, or a factor is missing or is there once too often."""
    for other, wanted in reference.outputs.items():
        if other != name and got.shape == wanted.shape and _is_close(got, wanted, reference.bounds[other]):
            return [said("It holds {other}.", other=other)]
    return _factor(problem, got, reference.outputs[name]) or known_values(got, reference.outputs[name], bad)


def _factor(problem: HstuProblem, got: Tensor, exact: Tensor) -> list[str]:
    alpha, length = problem.factor, problem.length
    for what, factor in (
        (said("alpha, which does not belong there"), alpha),
        (said("1 / alpha: alpha is missing"), 1 / alpha if alpha else 0.0),
        (said("the length: 1 / length is missing"), length),
        (said("1 / length, once too often"), 1 / length),
        (said("length / alpha: alpha / length is missing"), length / alpha if alpha else 0.0),
    ):
        is_other = not math.isclose(factor, 1.0)
        if is_other and factor and _is_close(got, factor * exact, 0.0):
            return [said("It is the right one times {factor:.4g}, {what}.", factor=factor, what=what)]
    return []


def _is_close(got: Tensor, wanted: Tensor, bound: float) -> bool:
    tolerance = 4 * bound + 2.0**-8 * float(wanted.abs().max())
    return bool(((got.double() - wanted).abs() <= tolerance).all())
