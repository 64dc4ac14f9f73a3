"""The check's messages about outputs that are wrong in a known way."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from rungs import named
from torch import Tensor

from ladder.common.words import describe, numbers, told_apart
from ladder.course.exercises import probes
from ladder.course.exercises.probes import _columns_found, _keys_found, _run
from ladder.operations import (
    DecodingProblem,
    Problem,
    Reference,
    attention_float64,
    make_inputs,
    operation_of,
    reference,
)
from ladder.operations.attention.diagnosis import diagnose
from ladder.operations.attention_backward.problem import BackwardProblem
from ladder.operations.hstu.operation import HstuBackwardProblem
from ladder.operations.hstu.problem import HstuProblem
from ladder.operations.hstu.reference import sequences
from ladder.stages import discover

PROBLEM = Problem(1, 2, 64, 40, 32, dtype="f16", is_causal=True)


@pytest.fixture(scope="module")
def right() -> Reference:
    q, k, v = make_inputs(PROBLEM)
    return reference(q, k, v, is_causal=True, scale=PROBLEM.softmax_scale)


@pytest.fixture
def o(right: Reference) -> Tensor:
    return right.o.half()


@pytest.fixture
def lse(right: Reference) -> Tensor:
    return right.lse.float()


def said(right: Reference, o: Tensor, lse: Tensor, owner: str = "fragments") -> str:
    return "\n".join(diagnose(PROBLEM, o, lse, right, owner))


def test_nothing_about_right_outputs(right: Reference, o: Tensor, lse: Tensor) -> None:
    assert said(right, o, lse) == ""


def test_rows_and_the_lanes_that_hold_them(right: Reference, o: Tensor, lse: Tensor) -> None:
    o.view(2, 4, 16, 32)[:, :, 8:10] = 100.0
    text = said(right, o, lse)
    assert "wrong in 512 of 4,096 elements, lse is right everywhere" in text
    assert "Wrong rows of o: 8-9 of every 16." in text
    assert "elements 2 and 3 of every accumulator" in text and "held by the lanes 0-7" in text
    assert "The first wrong one: o at batch 0, head 0, row 8, column 0 is 100" in text
    assert "lanes" not in said(right, o, lse, "thread")


def test_columns_and_the_lanes_that_hold_them(right: Reference, o: Tensor, lse: Tensor) -> None:
    o.view(2, 64, 4, 8)[..., 6:] = 100.0
    text = said(right, o, lse)
    assert "Wrong columns: 6-7 of every 8." in text and "lane % 4 = 3" in text


def test_heads(right: Reference, o: Tensor, lse: Tensor) -> None:
    o[:, 1] = 100.0
    assert "Only head 1 of 2 is wrong." in said(right, o, lse)


def test_several_heads() -> None:
    problem = Problem(1, 4, 16, 16, 32, dtype="f32")
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    o = right.o.float()
    o[:, 1:3] = 100.0
    text = "\n".join(diagnose(problem, o, right.lse.float(), right, "thread"))
    assert "Only heads 1-2 of 4 are wrong." in text


def test_unwritten_and_computed_nan_are_told_apart(right: Reference, o: Tensor, lse: Tensor) -> None:
    o[:, :, 48:] = math.nan
    lse[:, :, 0] = torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    text = said(right, o, lse)
    assert "1,024 elements are never written" in text and "in rows 48-63 of 64, the last ones" in text
    assert "2 of lse are computed as NaN" in text and "are computed as NaN: inf" not in text
    o[:, :, 48:] = torch.tensor(0x7FFF, dtype=torch.int16).view(torch.float16)
    text = said(right, o, lse)
    assert "1,024 elements are computed as NaN: inf" in text and "are never written" not in text


@pytest.mark.parametrize(
    ("value", "words"), [(math.inf, "4,096 elements are infinite"), (0.0, "The wrong elements are 0.")]
)
def test_infinite_and_zero(right: Reference, o: Tensor, lse: Tensor, value: float, words: str) -> None:
    assert words in said(right, torch.full_like(o, value), lse)


def test_factors(right: Reference, o: Tensor, lse: Tensor) -> None:
    assert "the right ones times 2." in said(right, o * 2, lse)
    factors = torch.linspace(2, 3, 64)[None, None, :, None].half()
    assert "times a factor of its own (2 to 3)" in said(right, o * factors, lse)


def test_exchanged_rows_and_columns(right: Reference, o: Tensor, lse: Tensor) -> None:
    assert "row 0 holds row 8, row 1 holds row 9" in said(right, o.roll(-8, 2), lse)
    assert "column 0 holds column 24" in said(right, o.roll(8, 3), lse)


def test_rows_that_look_alike_are_not_taken_for_each_other(right: Reference) -> None:
    """One key dominates, so rows are nearly the same, and a few of them are wrong in another way."""
    problem = Problem(1, 1, 40, 130, 64, dtype="f16", inputs="dominant")
    q, k, v = make_inputs(problem)
    alike = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    o = alike.o.half()
    o[:, :, [1, 8, 15, 30]] += 0.5 * torch.randn(64, generator=torch.Generator().manual_seed(1)).half()
    text = "\n".join(diagnose(problem, o, alike.lse.float(), alike, "fragments"))
    assert "Wrong rows of o: 4 of 40: 1, 8, 15, 30." in text and "wrong place" not in text
    o[:, :, [1, 8]] = alike.o.half()[:, :, [8, 1]]
    assert "wrong place" not in "\n".join(diagnose(problem, o, alike.lse.float(), alike, "fragments"))


def test_a_few_rows_that_hold_others_do_not_explain_all(right: Reference, o: Tensor, lse: Tensor) -> None:
    rolled = o.clone()
    rolled[:, :, 20:] = 0.5 - rolled[:, :, 20:]
    rolled[:, :, [4, 5]] = o[:, :, [5, 4]]
    assert "wrong place" not in said(right, rolled, lse)
    o[:, :, [4, 5]] = o[:, :, [5, 4]]
    assert "wrong place: row 4 holds row 5, row 5 holds row 4." in said(right, o, lse)


def test_a_mask_left_out(right: Reference, lse: Tensor) -> None:
    q, k, v = make_inputs(PROBLEM)
    unmasked, _ = attention_float64(q, k, v, is_causal=False, scale=PROBLEM.softmax_scale)
    assert "It equals the result without the causal mask." in said(right, unmasked.half(), lse)


@pytest.mark.parametrize("empty", [math.nan, 0.0])
def test_a_mask_that_hides_all_keys_of_the_first_row(right: Reference, lse: Tensor, empty: float) -> None:
    """A kernel may divide 0 by 0 there, or not."""
    q, k, v = (x.double() for x in make_inputs(PROBLEM))
    s = q @ k.mT * PROBLEM.softmax_scale
    o = torch.softmax(s.masked_fill(torch.ones_like(s).triu().bool(), -math.inf), -1) @ v
    o[:, :, 0] = empty
    assert "It equals the result where a query does not see its own key." in said(right, o.half(), lse)


def slip(problem: Problem, change: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]], **how: Any) -> str:
    """The diagnosis of attention with changed inputs, mask or scale."""
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=problem.is_causal, scale=problem.softmax_scale)
    asked = {"is_causal": problem.is_causal, "scale": problem.softmax_scale, **how}
    o, _ = attention_float64(*change(q, k, v), **asked)
    return "\n".join(diagnose(problem, o.to(q.dtype), right.lse.float(), right, "thread"))


def same(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors


def test_slips_have_names() -> None:
    plain = Problem(1, 2, 40, 70, 32, dtype="f32")
    causal = Problem(1, 1, 70, 40, 32, dtype="f32", is_causal=True)
    assert "with a causal mask, and the problem has none" in slip(plain, same, is_causal=True)
    assert "without the causal mask" in slip(causal, same, is_causal=False)
    assert "logits that are not scaled" in slip(plain, same, scale=1.0)
    assert "scaled twice" in slip(plain, same, scale=plain.softmax_scale**2)
    assert "too large: exp and exp2 are mixed up" in slip(
        plain, same, scale=plain.softmax_scale / math.log(2)
    )
    assert "without the last key" in slip(plain, lambda q, k, v: (q, k[:, :, :-1], v[:, :, :-1]))
    zeros = torch.zeros(1, 2, 26, 32)
    padded = slip(plain, lambda q, k, v: (q, torch.cat([k, zeros], 2), torch.cat([v, zeros], 2)))
    assert "26 keys past the end take part, with logits of 0" in padded
    assert "of only the last 6 keys" in slip(plain, lambda q, k, v: (q, k[:, :, 64:], v[:, :, 64:]))
    assert "where V stands for K." in slip(plain, lambda q, k, v: (q, v, v))
    assert "where K stands for Q." in slip(plain, lambda q, k, v: (k[:, :, :40], k, v))
    shifted = torch.tensor([*range(32), *range(1, 33), *range(2, 8)])
    tiles = slip(plain, lambda q, k, v: (q, k[:, :, shifted], v[:, :, shifted]))
    assert "tiles of 32 keys begin at keys 0, 1, 2 and so on" in tiles
    first = torch.arange(70) % 32
    again = slip(plain, lambda q, k, v: (q, k[:, :, first], v[:, :, first]))
    assert "each tile of 32 keys is treated as the first tile" in again
    swapped = slip(plain, lambda q, k, v: (q, k.flip(1), v.flip(1)))
    assert "Head 0 of batch 0 reads kv head 1 of batch 0; it should read kv head 0 of batch 0." in swapped


def test_a_tile_on_another_maximum() -> None:
    problem = Problem(1, 1, 40, 70, 32, dtype="f32")
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    q, k, v = q.double(), k.double(), v.double()
    s = q @ k.transpose(2, 3) * problem.softmax_scale
    first, whole = s[..., :32].amax(-1, keepdim=True), s.amax(-1, keepdim=True)
    second = torch.maximum(first, s[..., 32:64].amax(-1, keepdim=True))
    weights = torch.cat([s[..., :32] - first, s[..., 32:64] - second, s[..., 64:] - whole], -1).exp()

    def text(o: Tensor) -> str:
        return "\n".join(diagnose(problem, o.float(), right.lse.float(), right, "thread"))

    together, true = weights.sum(-1, keepdim=True), (s - whole).exp().sum(-1, keepdim=True)
    assert "where tiles of 32 keys are added up on different maxima" in text(weights @ v / together)
    assert "l is rescaled to each new maximum and o is not, with tiles of 32" in text(weights @ v / true)


def tile_by_tile(problem: Problem, factor: Callable[[Tensor], Tensor], *, forgets: bool = False) -> str:
    """The diagnosis of an online softmax over tiles of 32 keys. ``factor`` is made of m_old - m_new; what
    ``forgets`` the sum of the tiles before takes it for 1.
    """
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    s = q.double() @ k.double().mT * problem.softmax_scale
    o, l, m = torch.zeros_like(q).double(), 0.0, torch.full_like(s[..., :1], -math.inf)  # noqa: E741
    for j in range(0, problem.kv_len, 32):
        m_new = torch.maximum(m, s[..., j : j + 32].amax(-1, keepdim=True))
        weights = (s[..., j : j + 32] - m_new).exp()
        old = factor(m - m_new) if j > 0 else 0.0
        old = old * (1.0 if forgets else l)
        l, m = old + weights.sum(-1, keepdim=True), m_new  # noqa: E741
        o = (old * o + weights @ v[:, :, j : j + 32].double()) / l
    return "\n".join(diagnose(problem, o.float(), right.lse.float(), right, "thread"))


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (torch.exp2, "is made by exp2 instead of exp"),
        (lambda m: (m / math.log(2)).exp(), "is made by exp instead of exp2"),
        (lambda m: (-m).exp(), "is inverted"),
        (lambda m: (2 * m).exp(), "is multiplied in twice"),
        (lambda m: (m * 32**-0.5).exp(), "is made of maxima that are scaled once more"),
        (lambda m: (m * 32**0.5).exp(), "is made of maxima that are not scaled"),
    ],
)
def test_a_wrong_factor_onto_a_new_maximum(factor: Callable[[Tensor], Tensor], words: str) -> None:
    problem = Problem(1, 1, 40, 70, 32, dtype="f32")
    assert tile_by_tile(problem, torch.exp) == ""
    assert f"factor onto each new maximum {words}, with tiles of 32 keys" in tile_by_tile(problem, factor)


def test_the_sum_of_the_tiles_before_is_wrong() -> None:
    problem = Problem(1, 1, 40, 70, 32, dtype="f32")
    text = tile_by_tile(problem, torch.exp, forgets=True)
    assert "where the sum of the tiles before counts as 1, with tiles of 32 keys" in text


def test_only_whole_tiles_are_masked() -> None:
    problem = Problem(1, 2, 40, 70, 32, dtype="f32", is_causal=True)
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=True, scale=problem.softmax_scale)
    s = q.double() @ k.double().mT * problem.softmax_scale
    i, j = torch.arange(40)[:, None], torch.arange(70)

    def text(hidden: Tensor) -> str:
        o = torch.softmax(s.masked_fill(hidden, -math.inf), -1) @ v.double()
        return "\n".join(diagnose(problem, o.float(), right.lse.float(), right, "thread"))

    assert "where the mask hides only whole tiles of 16 keys" in text(j // 16 > i // 16)
    # The first wrong row and the last one tell where a mask that follows no rule is wrong.
    said = text((j > i) & ~((i > 3) & (i < 30) & (j < 32)))
    assert "Row 4 of head 0 equals the result with keys 5-31, which the mask hides." in said
    assert "Row 29 of head 0 equals the result with keys 30-31, which the mask hides." in said


@pytest.mark.parametrize(
    ("o_of", "words"),
    [
        (lambda p, k, v: p[..., 32:] @ v[:, :, 32:], "without keys 0-31, only in o: l is right."),
        (lambda p, k, v: p @ v + p[..., 32:48] @ v[:, :, 32:48], "where keys 32-47 count twice, only in o"),
        (
            lambda p, k, v: p @ v + 0.7 * p[..., :32] @ v[:, :, :32],
            "where keys 0-31 count 1.7 times, only in o",
        ),
        (
            lambda p, k, v: p @ torch.cat([k[:, :, :32], v[:, :, 32:]], 2),
            "where K stands for V at keys 0-31.",
        ),
    ],
)
def test_products_that_are_wrong_beside_a_right_sum(
    o_of: Callable[[Tensor, Tensor, Tensor], Tensor], words: str
) -> None:
    problem = Problem(1, 2, 40, 70, 64, dtype="f32")
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    p = torch.softmax(q.double() @ k.double().mT * problem.softmax_scale, -1)
    o = o_of(p, k.double(), v.double())
    text = "\n".join(diagnose(problem, o.float(), right.lse.float(), right, "thread"))
    assert f"Row 39 of head 0 equals the result {words}" in text


def test_an_lse_that_is_right_says_where_to_look(right: Reference, o: Tensor, lse: Tensor) -> None:
    text = said(right, o + torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).half(), lse)
    assert "The scores and l are right: look at the product P V" in text
    assert "The scores and l are right" not in said(right, o + 1, lse + 1)


def test_keys_that_count_too_much_in_o_and_in_l() -> None:
    problem = Problem(1, 2, 40, 70, 64, dtype="f32")
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    p = torch.softmax(q.double() @ k.double().mT * problem.softmax_scale, -1)
    p[..., :32] *= 1.7
    o, lse = p @ v.double() / p.sum(-1, keepdim=True), right.lse + p.sum(-1).log()
    text = "\n".join(diagnose(problem, o.float(), lse.float(), right, "thread"))
    assert "Row 39 of head 0 equals the result where keys 0-31 count 1.7 times." in text


def test_what_is_missing_of_lse() -> None:
    problem = Problem(1, 1, 40, 70, 32, dtype="f32")
    q, k, v = make_inputs(problem)
    right = reference(q, k, v, is_causal=False, scale=problem.softmax_scale)
    m = (q.double() @ k.double().transpose(2, 3) * problem.softmax_scale).amax(-1)
    log_l = right.lse - m
    for lse, words in (
        (log_l, "It is log(l): m is missing."),
        (m, "It is m: log(l) is missing."),
        (m + log_l.exp(), "It is m + l: the log of l is missing."),
        (m + log_l / math.log(2), "It is m + log2(l), and the natural log is wanted."),
        (log_l - m, "m has the wrong sign"),
    ):
        assert words in "\n".join(diagnose(problem, right.o.float(), lse.float(), right, "thread"))


BACKWARD = BackwardProblem(1, 4, 24, 40, 32, kv_heads=2, dtype="f32", is_causal=True)


def backward_said(change: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> str:
    """The diagnosis of gradients computed from weights and dS (B, H, N, M) that ``change`` makes."""
    operation = operation_of(BACKWARD)
    inputs = operation.make_inputs(BACKWARD)
    q, d_o = inputs["q"].double(), inputs["d_o"].double()
    k, v = (inputs[name].double().repeat_interleave(2, 1) for name in "kv")
    s = (q @ k.mT * BACKWARD.softmax_scale).masked_fill(
        ~torch.ones(24, 40, dtype=torch.bool).tril(), -math.inf
    )
    dp = d_o @ v.mT
    p, ds = change(s, torch.softmax(s, -1), dp, (torch.softmax(s, -1) * dp).sum(-1, keepdim=True))
    scale = BACKWARD.softmax_scale
    of_keys = {"dk": scale * ds.mT @ q, "dv": p.mT @ d_o}
    outputs = {"dq": scale * ds @ k, **{name: x.unflatten(1, (2, 2)).sum(2) for name, x in of_keys.items()}}
    outputs = {name: x.float() for name, x in outputs.items()}
    return "\n".join(
        operation.diagnose(BACKWARD, outputs, operation.reference(BACKWARD, inputs), "fragments")
    )


def test_slips_of_gradients_have_names() -> None:
    assert backward_said(lambda s, p, dp, delta: (p, p * (dp - delta))) == ""
    text = backward_said(lambda s, p, dp, delta: (p, p * dp))
    assert text.startswith(
        "It equals the result where delta is left out: dS = P * dP.\ndv is right.\ndq is wrong"
    )
    assert "Wrong rows of dk:" in text and "The first wrong one: dq at batch 0" in text
    text = backward_said(lambda s, p, dp, delta: (p, p * (dp + delta)))
    assert "where delta is added instead of subtracted" in text
    text = backward_said(lambda s, p, dp, delta: (p, p * dp - delta))
    assert "where delta is subtracted after the product" in text

    def without_scale(s: Tensor, p: Tensor, dp: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        p = (s / BACKWARD.softmax_scale - torch.logsumexp(s, -1, keepdim=True)).exp()
        return p, p * (dp - delta)

    assert "where the weights are made of logits that are not scaled" in backward_said(without_scale)


@pytest.mark.parametrize(("of_p", "of_ds"), [(1.002, 1.0), (1.0, 1.002)])
def test_a_slip_does_not_explain_gradients_that_it_leaves_right(of_p: float, of_ds: float) -> None:
    """A gradient that is wrong by 0.2 % is close to the results of slips in the others."""
    text = backward_said(lambda s, p, dp, delta: (of_p * p, of_ds * p * (dp - delta)))
    assert "is right" in text or "are right" in text
    assert "It equals the result" not in text

    def hstu(s: Tensor, dp: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        sigmoid = torch.sigmoid(s)
        return of_p * s * sigmoid * seen, of_ds * sigmoid * (1 + s * (1 - sigmoid)) * dp * seen

    text = gradients_said(hstu)
    assert "is right" in text or "are right" in text
    assert "It equals the result" not in text


def hstu_said(change: Callable[[Tensor, Tensor], Tensor], *, k_for_v: bool = False) -> str:
    """The diagnosis of HSTU attention whose weights (H, n, m) are computed differently from products and
    mask.
    """
    problem = HstuProblem(2, 32, (20, 30), kv_lens=(50, 30), dtype="f32")
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    o = torch.empty(50, 2, 32)
    for one in sequences(problem, inputs):
        s = torch.einsum("nhd,mhd->hnm", one.q.double(), one.k.double())
        values = (one.k if k_for_v else one.v).double()
        wrong = torch.einsum("hnm,mhd->nhd", change(s, one.seen), values) / problem.length
        o[one.queries] = wrong.float()
    return "\n".join(operation.diagnose(problem, {"o": o}, operation.reference(problem, inputs), "fragments"))


def test_slips_of_hstu_have_names() -> None:
    alpha = 1 / math.sqrt(32)
    silu = torch.nn.functional.silu
    assert hstu_said(lambda s, seen: silu(alpha * s) * seen) == ""
    assert "where the logits are not multiplied by alpha" in hstu_said(lambda s, seen: silu(s) * seen)
    assert "silu is left out" in hstu_said(lambda s, seen: alpha * s * seen)
    assert "not silu" in hstu_said(lambda s, seen: torch.sigmoid(alpha * s) * seen)
    assert "without the mask" in hstu_said(lambda s, seen: silu(alpha * s))
    assert "where K stands for V." in hstu_said(lambda s, seen: silu(alpha * s) * seen, k_for_v=True)
    early = hstu_said(lambda s, seen: silu(alpha * s) * torch.ones_like(seen).tril())
    assert "where query i stands at position i" in early and "Only sequence 0 of 2 is wrong." in early
    assert "The first wrong one: o at sequence 0, row 0, head 0, column 0" in early


def test_rows_of_gradients_that_lack_something() -> None:
    def without_queries(s: Tensor, p: Tensor, dp: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        ds = p * (dp - delta)
        ds[:, :, 4:8] = 0.0
        return p, ds

    text = backward_said(without_queries)
    assert "dv is right." in text and "Row 0 of dk, head 0, equals the result without queries 4-7." in text

    def without_keys(s: Tensor, p: Tensor, dp: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        ds = p * (dp - delta)
        ds[..., 9:] = 0.0
        return p, ds

    assert "Row 23 of dq, head 0, equals the result without keys 9-23." in backward_said(without_keys)


def test_keys_that_a_row_of_hstu_lacks_or_should_not_see() -> None:
    alpha, silu = 1 / math.sqrt(32), torch.nn.functional.silu

    def without_keys(s: Tensor, seen: Tensor) -> Tensor:
        seen = seen.clone()
        seen[:, 8:16] = False
        return silu(alpha * s) * seen

    def with_more(s: Tensor, seen: Tensor) -> Tensor:
        return silu(alpha * s) * (seen | seen.roll(3, 1))

    assert "Row 19 of it, head 0, equals the result without keys 8-15." in hstu_said(without_keys)
    assert "equals the result with key 49, which the mask hides." in hstu_said(with_more)
    ones = hstu_said(lambda s, seen: silu(alpha * s) * seen + ~seen)
    assert (
        "Row 0 of it, head 0, equals the result where keys 31-49, which the mask hides, have the weight 1."
        in ones
    )
    twice = hstu_said(lambda s, seen: silu(alpha * s) * seen * (1 + (torch.arange(seen.shape[1]) < 4).int()))
    assert "equals the result where keys 0-3 count twice." in twice
    for count, words in (
        (0, "with keys 0-7 of every 16 alone."),
        (2, "where keys 8-15 of every 16 count twice."),
    ):
        share = torch.where(torch.arange(50) // 8 % 2 == 1, count, 1)
        text = hstu_said(lambda s, seen, share=share: silu(alpha * s) * seen * share[: seen.shape[1]])  # type: ignore[misc]
        assert f"Row 19 of it, head 0, equals the result {words}" in text
    share = (torch.arange(50) // 8 % 4 == 2).int()
    alone = hstu_said(lambda s, seen: silu(alpha * s) * seen * share[: seen.shape[1]])
    assert "Row 19 of it, head 0, equals the result with keys 16-23 of every 32 alone." in alone
    without = hstu_said(lambda s, seen: silu(alpha * s) * seen * (1 - share[: seen.shape[1]]))
    assert "equals the result without keys 16-23 of every 32." in without
    others = hstu_said(lambda s, seen: silu(alpha * s) * seen * (2 - share[: seen.shape[1]]))
    assert "equals the result where all but keys 16-23 of every 32 count twice." in others
    generator = torch.Generator().manual_seed(0)
    noisy = hstu_said(lambda s, seen: silu(alpha * s) * seen * torch.rand(seen.shape, generator=generator))
    assert "o is wrong" in noisy and "equals the result" not in noisy


def test_a_nan_of_a_token_in_a_page() -> None:
    problem = HstuProblem(1, 32, (20,), kv_lens=(50,), targets=(5,), dtype="f16", page_size=32)
    operation = operation_of(problem)
    exact = operation.reference(problem, operation.make_inputs(problem))
    o = exact.outputs["o"].half()
    o[3] = torch.tensor(0x7FFF, dtype=torch.int16).view(torch.float16)  # computed, not the fill
    said = operation.diagnose(problem, {"o": o}, exact, "fragments")
    assert "With pages, k and v are NaN but for the targets, and so is a last page past its last key." in said
    o[3] = 0.0
    assert not any("NaN" in one for one in operation.diagnose(problem, {"o": o}, exact, "fragments"))


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (2.0, "where the bias is added twice"),
        (-1.0, "where the bias is subtracted"),
        (32**-0.5, "where the bias is multiplied by alpha twice"),
        (32**0.5, "where the bias is not multiplied by alpha"),
    ],
)
def test_a_bias_with_a_wrong_factor(times: float, words: str) -> None:
    problem = HstuProblem(2, 32, (20, 30), kv_lens=(50, 30), dtype="f32", bias_heads=2)
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    o = torch.empty(50, 2, 32)
    for one in sequences(problem, inputs):
        assert one.bias is not None
        s = torch.einsum("nhd,mhd->hnm", one.q.double(), one.k.double()) + times * one.bias.double()
        p = torch.nn.functional.silu(problem.factor * s) * one.seen
        o[one.queries] = (torch.einsum("hnm,mhd->nhd", p, one.v.double()) / problem.length).float()
    said = operation.diagnose(problem, {"o": o}, operation.reference(problem, inputs), "fragments")
    assert f"It equals the result {words}." in said


def test_the_bias_of_another_position_or_none() -> None:
    problem = HstuProblem(2, 32, (20, 30), kv_lens=(50, 30), dtype="f32", bias_heads=1)
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    o = torch.empty(50, 2, 32)
    for one in sequences(problem, inputs):
        n, m = one.q.shape[0], one.k.shape[0]
        s = torch.einsum("nhd,mhd->hnm", one.q.double(), one.k.double())
        s += inputs["rab"][one.number, 0, :n, :m].double()  # query i's position taken to be i
        if one.number == 1:
            s[:, 29] -= inputs["rab"][1, 0, 29, :m].double()
        p = torch.nn.functional.silu(problem.factor * s) * one.seen
        o[one.queries] = (torch.einsum("hnm,mhd->nhd", p, one.v.double()) / problem.length).float()
    exact = operation.reference(problem, inputs)
    said = operation.diagnose(problem, {"o": o}, exact, "fragments")
    words = "Row 19 of it, head 0, equals the result with the bias of position 19; it is at position 49."
    assert words in said
    later = {"o": o.where(torch.arange(50)[:, None, None] >= 20, exact.outputs["o"].float())}
    assert "Row 29 of it, head 0, equals the result without the bias." in operation.diagnose(
        problem, later, exact, "fragments"
    )


def gradients_said(
    change: Callable[..., tuple[Tensor, Tensor]], alpha_in_dk: int = 1, *, dv_for_dk: bool = False
) -> str:
    """The diagnosis of HSTU's gradients whose weights and dS (H, n, m) are computed differently from the
    logits, dP and the mask.
    """
    problem = HstuBackwardProblem(2, 32, (20, 30), kv_lens=(50, 30), dtype="f32")
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    outputs = {one.name: torch.empty(one.shape) for one in operation.outputs(problem)}
    for one in sequences(problem, inputs):
        q, k, v, d_o = (x.double() for x in (one.q, one.k, one.v, inputs["d_o"][one.queries]))
        s = problem.factor * torch.einsum("nhd,mhd->hnm", q, k)
        p, ds = change(s, torch.einsum("nhd,mhd->hnm", d_o, v), one.seen)
        of_logits = problem.factor / problem.length
        outputs["dq"][one.queries] = (torch.einsum("hnm,mhd->nhd", ds, k) * of_logits).float()
        of_logits *= problem.factor ** (alpha_in_dk - 1)
        outputs["dk"][one.keys] = (torch.einsum("hnm,nhd->mhd", ds, q) * of_logits).float()
        outputs["dv"][one.keys] = (torch.einsum("hnm,nhd->mhd", p, d_o) / problem.length).float()
    if dv_for_dk:
        outputs["dk"] = outputs["dv"]
    return "\n".join(operation.diagnose(problem, outputs, operation.reference(problem, inputs), "fragments"))


def test_slips_of_hstu_gradients_have_names() -> None:
    silu = torch.nn.functional.silu

    def slope(s: Tensor) -> Tensor:
        sigmoid = torch.sigmoid(s)
        return sigmoid * (1 + s * (1 - sigmoid))

    def right(s: Tensor, dp: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        return silu(s) * seen, slope(s) * dp * seen

    assert gradients_said(right) == ""
    said = gradients_said(lambda s, dp, seen: (silu(s) * seen, dp * seen))
    assert said.startswith("It equals the result where dP stands for dS") and "dv is right." in said
    said = gradients_said(lambda s, dp, seen: (silu(s) * seen, slope(s) * dp))
    assert said.startswith("It equals the result where the slopes are not masked.")
    assert "Wrong rows of dq in sequence 0: 0-18 of 20, the first ones." in said
    said = gradients_said(lambda s, dp, seen: (silu(s), slope(s) * dp * seen))
    assert said.startswith("It equals the result where the weights are not masked.")
    assert "dq and dk are right." in said

    def without_queries(s: Tensor, dp: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        p, ds = right(s, dp, seen)
        ds[:, 5:9] = 0.0
        return p, ds

    said = gradients_said(without_queries)
    assert "dv is right." in said and "dk[0, 0] equals the result without queries 5-8." in said
    said = gradients_said(right, alpha_in_dk=0)
    assert "dq and dv are right." in said and "times 5.657, 1 / alpha: alpha is missing." in said
    assert (
        "dq and dv are right." in (said := gradients_said(right, dv_for_dk=True)) and "It holds dv." in said
    )
    said = gradients_said(right, alpha_in_dk=2)
    assert "times 0.1768, alpha, which does not belong there." in said


@pytest.mark.parametrize(
    ("is_causal", "change", "words"),
    [
        (False, lambda seen, j: seen & ((j < 8) | (j >= 16)), "Row 63 of head 0 without keys 8-15."),
        (True, lambda seen, j: seen & (j < 16), "Row 63 of head 0 without keys 16-39."),
        (True, lambda seen, j: seen & (j != 5), "Row 63 of head 0 without key 5."),
        (True, lambda seen, j: seen | (j < 4), "Row 2 of head 0 with key 3, which the mask hides."),
    ],
)
def test_keys_that_a_row_lacks_or_should_not_see(
    is_causal: bool, change: Callable[[Tensor, Tensor], Tensor], words: str
) -> None:
    problem = replace(PROBLEM, is_causal=is_causal)
    q, k, v = (x.double() for x in make_inputs(problem))
    i, j = torch.arange(64)[:, None], torch.arange(40)
    seen = (j <= i) | torch.tensor(not is_causal)
    s = (q @ k.mT * problem.softmax_scale).masked_fill(~change(seen, j), -math.inf)
    exact = reference(*make_inputs(problem), is_causal=is_causal, scale=problem.softmax_scale)
    said = diagnose(problem, (torch.softmax(s, -1) @ v).half(), s.logsumexp(-1).float(), exact, "fragments")
    assert words in [one.replace("equals the result ", "") for one in said]


def test_digits_that_differ_show(right: Reference, o: Tensor, lse: Tensor) -> None:
    assert told_apart(-97.35412, -97.35399) == ("-97.3541", "-97.354")
    assert told_apart(1.0, 2.0) == ("1", "2")
    text = said(right, o, lse + 2e-4)
    values = re.search(r"lse at .* is (\S+), should be (\S+)\.$", text, re.MULTILINE)
    assert values is not None and values[1] != values[2]


def test_lse_in_another_base_or_off_by_a_number(right: Reference, o: Tensor, lse: Tensor) -> None:
    text = said(right, o, lse / math.log(2))
    assert "o is right everywhere" in text and "log2 where it should be the natural log" in text
    assert "differs by 0.25 in every wrong row" in said(right, o, lse + 0.25)


def test_a_right_rung_finds_each_key_and_column() -> None:
    problem = Problem(1, 1, 16, 32, 32, dtype="f32", scale=1.0)
    assert _keys_found(_run(discover()["v1"], problem, torch.eye(32))) == []
    columns = torch.arange(1, 33, dtype=torch.float32).repeat(32, 1)
    assert _columns_found(_run(discover()["v1"], problem, columns)) == []


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_the_probe_of_a_rung_with_a_softcap_has_one(softcap: float | None, monkeypatch) -> None:
    """A rung that needs a softcap divides by it. On the probe only a query's own key has a weight."""
    asked: list[Problem] = []

    def run(stage: object, problem: Problem, values: Tensor) -> Tensor:
        asked.append(problem)
        logits = torch.zeros(16, 64).diagonal_scatter(torch.full((16,), 64.0))
        if problem.softcap is not None:
            logits = problem.softcap * torch.tanh(logits / problem.softcap)
        return torch.softmax(logits, 1) @ values

    monkeypatch.setattr(probes, "_run", run)
    rung = discover()["x4" if softcap else named("v7")]
    assert probes.probe(rung, Problem(1, 1, 100, 150, 64, dtype="f16", softcap=softcap), keys=True) == []
    assert len(asked) == 2 and all(rung.suits(problem) for problem in asked)


def test_probes() -> None:
    weights = torch.eye(64)[:16]
    assert _keys_found(weights) == []
    [text] = _keys_found(weights.roll(8, 0))
    assert text.startswith(
        "On inputs where query i should find key i and no other, query 0 finds key 8, query 1"
    )
    [text] = _keys_found(torch.full((16, 64), 1 / 64))
    assert "query 0 finds all alike" in text
    [text] = _keys_found(torch.full((16, 64), math.nan))
    assert "query 0 finds none" in text

    o = torch.arange(1.0, 65).repeat(16, 1)
    assert _columns_found(o) == []
    assert _columns_found(o * 0.25) == [] and _columns_found(o * torch.rand(16, 1)) == []
    [text] = _columns_found(torch.cat([o[:, 8:16], o[:, :8], o[:, 16:]], 1))
    assert "columns 16-63 are right, column 0 holds what belongs in 8" in text
    o[3, 5] = math.nan
    [text] = _columns_found(o)
    assert "column 5 holds what belongs elsewhere" in text


@pytest.mark.parametrize(
    ("wrong", "count", "words"),
    [
        (range(64), 64, "all 64"),
        ([0], 1, "the only one"),
        ([0], 64, "0 of 64"),
        (range(10), 64, "0-9 of 64, the first ones"),
        (range(5, 9), 64, "5-8 of 64"),
        (range(1, 64, 2), 64, "1 of every 2"),
        ([i for i in range(64) if i % 8], 64, "all but 0 of every 8"),
        ([i for i in range(64) if i % 16 in (3, 4) and i != 3], 64, "7 of 64: 4, 19-20, 35-36, 51-52"),
        ([1, 5, 30], 64, "3 of 64: 1, 5, 30"),
    ],
)
def test_describe(wrong: list[int], count: int, words: str) -> None:
    assert describe(list(wrong), count) == words


def test_numbers_are_cut_off() -> None:
    assert numbers(range(0, 100, 3)) == "0, 3, 6, 9, 12, 15, 18, 21, ..."


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"is_causal": False}, "Sequence 0: It equals the result without the causal mask."),
        ({"window": 30}, "Sequence 0: Row 3 of head 1 equals the result without keys 0-168."),
    ],
)
def test_slips_of_decoding_are_those_of_attention(wrong: dict[str, Any], says: str) -> None:
    problem = DecodingProblem(2, 2, 4, 200, 64, kv_heads=1, dtype="f16", is_causal=True, lengths=(200, 70))
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem)
    found = operation.reference(replace(problem, **wrong), inputs)
    outputs = {"o": found.outputs["o"].half(), "lse": found.outputs["lse"].float()}
    sentences = operation.diagnose(problem, outputs, operation.reference(problem, inputs), "thread")
    assert says in sentences
