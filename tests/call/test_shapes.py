"""Shapes that torch's attention takes, beside torch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ladder
from ladder.errors import InvalidProblem

#: The leading dimensions of query, key and value.
LEADS = {
    "no heads": ((), (), ()),
    "3 dimensions": ((2,), (2,), (2,)),
    "5 dimensions": ((2, 1, 2), (2, 1, 2), (2, 1, 2)),
    "one key for all batches": ((3, 2), (1, 2), (1, 2)),
    "one query for all batches": ((1, 2), (3, 2), (3, 2)),
    "key without a batch": ((3, 2), (2,), (2,)),
    "one head of keys": ((2, 3), (2, 1), (2, 1)),
    "one head of queries": ((2, 1), (2, 3), (2, 3)),
    "value broadcast": ((2, 2), (2, 2), (1, 2)),
    "no batch": ((0, 2), (0, 2), (0, 2)),
    "no heads at all": ((2, 0), (2, 0), (2, 0)),
}


def tensors(leads: tuple[tuple[int, ...], ...], n: int = 9, m: int = 7, d: int = 32) -> list[Tensor]:
    torch.manual_seed(0)
    rows = (n, m, m)
    return [torch.randn(*lead, r, d, requires_grad=True) for lead, r in zip(leads, rows, strict=True)]


def require_like_torch(given: list[Tensor], **choices: bool) -> None:
    o, lse = ladder.attention(*given, **choices)
    expected = F.scaled_dot_product_attention(*given, **choices)
    assert o.shape == expected.shape and lse.shape == o.shape[:-1]
    torch.testing.assert_close(o, expected, rtol=0, atol=2e-6)
    d_o = torch.randn(o.shape)
    found, wanted = (torch.autograd.grad(x, given, d_o) for x in (o, expected))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("leads", LEADS.values(), ids=LEADS)
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_leading_dimensions(leads: tuple[tuple[int, ...], ...], is_causal: bool) -> None:
    require_like_torch(tensors(leads), is_causal=is_causal)


def test_grouped_heads_of_five_dimensions() -> None:
    require_like_torch(tensors(((2, 1, 4), (2, 2, 2), (2, 2, 2))), enable_gqa=True)


@pytest.mark.parametrize(("n", "m"), [(0, 7), (9, 0), (0, 0)])
def test_no_queries_or_keys(n: int, m: int) -> None:
    given = tensors(((2, 2), (2, 2), (2, 2)), n, m)
    require_like_torch(given)
    assert (ladder.attention(*given)[1] == -math.inf).all()


def test_a_compiled_graph_has_them_too() -> None:
    given = [x.detach() for x in tensors(LEADS["3 dimensions"])]
    compiled = torch.compile(ladder.attention, backend="eager", fullgraph=True)
    assert torch.equal(compiled(*given)[0], ladder.attention(*given)[0])


@pytest.mark.parametrize(
    ("leads", "d", "message"),
    [
        (((2, 2), (3, 2), (3, 2)), 32, "do not go together: (2, 2, 9, 32), (3, 2, 7, 32)"),
        (((2, 4), (2, 2), (2, 2)), 32, "query has 4 heads and key 2"),
        (((0, 4), (0, 4), (0, 4)), 0, "at least 1"),
        (((2, 4), (2, 0), (2, 0)), 32, "do not go together"),
    ],
)
def test_what_torch_does_not_take_either(leads: tuple[tuple[int, ...], ...], d: int, message: str) -> None:
    with pytest.raises(InvalidProblem) as refused:
        ladder.attention(*tensors(leads, d=d))
    assert message in str(refused.value)
