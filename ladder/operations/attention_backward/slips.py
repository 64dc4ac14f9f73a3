"""Common slips in the backward pass, and the gradients that each produces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ladder.common.wording import said
from ladder.operations.attention_backward.problem import BackwardProblem
from ladder.operations.terms import KEYS, QUERIES, range_of_terms

#: Problems with more logits are not searched, which would take too long.
_MOST_LOGITS = 2**22
_LOG2E = 1 / math.log(2)
Gradients = Mapping[str, Tensor]


class _Pass:
    """A backward pass in float64: unmasked logits ``s``, weights ``p``, ``dp`` and ``ds`` (B, H, N, M); lse
    and delta (B, H, N, 1).
    """

    def __init__(self, problem: BackwardProblem, inputs: Mapping[str, Any]) -> None:
        self.group = problem.heads // problem.num_kv_heads
        self.scale = problem.softmax_scale
        self.q, self.d_o = inputs["q"].double(), inputs["d_o"].double()
        self.k, v = (inputs[name].double().repeat_interleave(self.group, 1) for name in "kv")
        self.lse = inputs["lse"].double()[..., None]
        self.delta = (inputs["o"].double() * self.d_o).sum(-1, keepdim=True)
        if inputs["d_lse"] is not None:
            self.delta -= inputs["d_lse"].double()[..., None]
        self.s = self.q @ self.k.mT * self.scale
        #: The distance by which a key is ahead of its query.
        self.ahead = torch.arange(problem.kv_len) - torch.arange(problem.q_len)[:, None]
        begin, end = problem.band
        self.hidden = (self.ahead < begin) | (self.ahead >= end)
        self.p = self.weights(self.s)
        self.dp = self.d_o @ v.mT
        self.ds = self.p * (self.dp - self.delta)

    def weights(self, exponents: Tensor, hidden: Tensor | None = None) -> Tensor:
        """exp(exponents - lse) where the mask allows it, 0 elsewhere."""
        hidden = self.hidden if hidden is None else hidden
        return (exponents - self.lse).exp().masked_fill(hidden, 0.0)

    def gradients(self, p: Tensor, ds: Tensor, heads: slice = slice(None)) -> Gradients:
        """Returns dq of all heads, and dk and dv summed over the heads of each group."""
        dk, dv = self.scale * ds.mT @ self.q, p.mT @ self.d_o
        of_keys = {
            name: x.unflatten(1, (-1, self.group))[:, :, heads].sum(2) for name, x in (("dk", dk), ("dv", dv))
        }
        return {"dq": self.scale * ds @ self.k, **of_keys}

    def with_weights(self, p: Tensor) -> Gradients:
        """The gradients with other weights and the same delta."""
        return self.gradients(p, p * (self.dp - self.delta))


def slip(
    problem: BackwardProblem, inputs: Mapping[str, Any], outputs: Gradients, bounds: Mapping[str, float]
) -> str:
    """Describes the slip that produces the gradients ``outputs``; "" if it is none of the known ones.

    ``outputs`` are those that are wrong, ``bounds`` how far they may be from what is right.
    """
    if problem.batch * problem.heads * problem.q_len * problem.kv_len > _MOST_LOGITS:
        return ""
    one = _Pass(problem, inputs)
    right = one.gradients(one.p, one.ds)
    for says, wrong in _slips(problem, one):
        # A slip that leaves a gradient right does not explain one that is only a little wrong.
        is_wrong = (bool(((wrong[name] - right[name]).abs() > bounds[name]).any()) for name in outputs)
        if all(is_wrong) and all(_is_close(outputs[name], wrong[name], bounds[name]) for name in outputs):
            return said("It equals the result {says}.", says=says)
    return ""


def range_of(
    problem: BackwardProblem,
    inputs: Mapping[str, Any],
    name: str,
    place: tuple[int, int, int],
    error: Tensor,
    bound: float,
) -> str:
    """Describes the keys, or queries, by which the row of a gradient at (batch, head, row) is wrong by
    ``error`` (d); "" if it is not by some that follow each other.
    """
    if problem.batch * problem.heads * problem.q_len * problem.kv_len > _MOST_LOGITS:
        return ""
    one, (batch, head, row) = _Pass(problem, inputs), place
    p = one.weights(one.s, torch.zeros_like(one.hidden))
    weights = p if name == "dv" else p * (one.dp - one.delta) * one.scale
    if name == "dq":
        terms, hidden = weights[batch, head, row, :, None] * one.k[batch, head], one.hidden[row]
    else:
        heads = slice(head * one.group, (head + 1) * one.group)
        factors = (one.d_o if name == "dv" else one.q)[batch, heads]
        terms, hidden = (weights[batch, heads, :, row, None] * factors).sum(0), one.hidden[:, row]
    seen, others = (terms.masked_fill(out[:, None], 0.0) for out in (hidden, ~hidden))
    return range_of_terms(error, seen, others, bound, KEYS if name == "dq" else QUERIES)


def _is_close(got: Tensor, wanted: Tensor, bound: float) -> bool:
    """Whether they are close element by element and overall, where ``got`` is finite: wrong weights may
    overflow.
    """
    there = got.isfinite()
    if 2 * int(there.sum()) < there.numel():
        return False
    difference, wanted = got[there].double() - wanted[there], wanted[there]
    tolerance = 4 * bound + 2.0**-8 * float(wanted.abs().max())
    is_near = bool((difference.abs() <= tolerance).all())
    return is_near and float(difference.norm()) <= 4 * bound * math.sqrt(wanted.numel()) + 0.02 * float(
        wanted.norm()
    )


def _slips(problem: BackwardProblem, one: _Pass) -> Iterator[tuple[str, Gradients]]:
    p, dp, delta = one.p, one.dp, one.delta
    yield said("where delta is left out: dS = P * dP"), one.gradients(p, p * dp)
    yield said("where delta is added instead of subtracted"), one.gradients(p, p * (dp + delta))
    yield said("where lse, times log2(e), stands for delta"), one.gradients(p, p * (dp - one.lse * _LOG2E))
    yield said("where the weights are left out: dS = dP - delta"), one.gradients(p, dp - delta)
    yield (
        said("where delta is subtracted after the product: dS = P * dP - delta"),
        one.gradients(p, p * dp - delta),
    )
    yield said("where dP is left out: dS = -P * delta"), one.gradients(p, -p * delta)
    yield said("where dS stands for P"), one.gradients(one.ds, one.ds)
    yield said("where P stands for dS"), one.gradients(p, p)
    if one.group > 1:
        first = said("where of the heads that share their keys only the first one counts")
        last = said("where of the heads that share their keys only the last one counts")
        yield first, one.gradients(p, one.ds, slice(1))
        yield last, one.gradients(p, one.ds, slice(-1, None))
    for what, exponents in _exponents(one):
        yield (
            said("where the weights are made of {what}", what=what),
            one.with_weights(one.weights(exponents)),
        )
    if problem.is_causal:
        for what, hidden in _masks(problem, one):
            yield what, one.with_weights(one.weights(one.s, hidden))


def _exponents(one: _Pass) -> Iterator[tuple[str, Tensor]]:
    """Yields the exponents of each slip, from which lse is subtracted."""
    yield said("logits that are log2(e) times too large: exp and exp2 are mixed up"), one.s * _LOG2E
    yield said("logits that are log2(e) times too small: exp and exp2 are mixed up"), one.s / _LOG2E
    yield said("logits that are divided by log2(e), and should be multiplied by it"), one.s / _LOG2E**2
    if one.scale:
        yield said("logits that are not scaled"), one.s / one.scale
        yield said("logits that are scaled twice"), one.s * one.scale
        both = one.s - one.scale * _LOG2E * one.lse + one.lse
        yield (
            said("logits and an lse that have been multiplied by scale * log2(e), lse for the second time"),
            both,
        )
    yield said("logits from which lse is not subtracted"), one.s + one.lse
    yield said("logits to which lse is added"), one.s + 2 * one.lse


def _masks(problem: BackwardProblem, one: _Pass) -> Iterator[tuple[str, Tensor]]:
    """Yields masks other than the right one."""
    yield said("without the causal mask"), one.ahead > problem.kv_len
    yield said("where a query sees the key after its own"), one.ahead > 1
    yield said("where a query does not see its own key"), one.ahead > -1
    yield said("of a mask aligned to the lower right"), one.ahead > problem.kv_len - problem.q_len
    yield said("where a query sees the keys behind it and not those before it"), one.ahead < 0
