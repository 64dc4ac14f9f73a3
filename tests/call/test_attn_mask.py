"""``attn_mask`` beside torch's: masks in which the keys of a query are one range; others are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ladder
from ladder.errors import InvalidProblem, UnsupportedProblem

B, H, N, M = 2, 2, 20, 24
KEYS, ROWS = torch.arange(M), torch.arange(N)[:, None]
LENGTHS, PADDED = torch.tensor([[7], [24]]), torch.tensor([[5], [0]])
RIGHT_PADDING = (LENGTHS > KEYS)[:, None, None]  # (B, 1, 1, M)
LEFT_PADDING = (PADDED <= KEYS)[:, None, None]
CAUSAL = KEYS <= ROWS
AFTER_A_CACHE = KEYS <= ROWS + M - N
WINDOW = CAUSAL & (KEYS > ROWS - 6)
PACKED = CAUSAL & ((KEYS < 9) == (ROWS < 9))


def draw(d: int = 32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(B, H, n, d, generator=generator).half() for n in (N, M, M)]


def expected(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """torch's in double precision; 0 for a query that sees no key."""
    o = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), seen.expand(B, H, N, M))
    return torch.where(seen.any(-1, keepdim=True), o, 0)


@pytest.mark.parametrize("mask", [RIGHT_PADDING, LEFT_PADDING, CAUSAL, PACKED, CAUSAL & LEFT_PADDING])
@pytest.mark.parametrize("floats", [False, True])
def test_it_is_torchs(mask: Tensor, floats: bool) -> None:
    q, k, v = draw()
    given = torch.where(mask, 0.0, -torch.inf).half() if floats else mask
    o, lse = ladder.attention(q, k, v, given, stage="v3")
    assert (o - expected(q, k, v, mask)).abs().max() < 4e-3
    scores = (q.double() @ k.double().mT * 32**-0.5).masked_fill(~mask, -torch.inf)
    assert torch.allclose(lse.double(), scores.logsumexp(-1), atol=4e-3)
    assert o.is_contiguous() and lse.is_contiguous()


@pytest.mark.parametrize("mask", [AFTER_A_CACHE, WINDOW])
def test_at_an_offset_and_in_a_window(mask: Tensor) -> None:
    q, k, v = draw(64)
    o, _ = ladder.attention(q, k, v, mask)
    assert (o - expected(q, k, v, mask)).abs().max() < 4e-3


def test_its_gradients() -> None:
    q, k, v = leaves = [x.requires_grad_() for x in draw()]
    o, _ = ladder.attention(q, k, v, PACKED & RIGHT_PADDING, stage="v3", backward="b2")
    found = torch.autograd.grad(o.sum(), leaves)
    wanted = torch.autograd.grad(expected(q, k, v, PACKED & RIGHT_PADDING).sum(), leaves)
    assert all((a - b).abs().max() < 2e-2 for a, b in zip(found, wanted, strict=True))


def test_a_query_without_keys_has_its_sink() -> None:
    q, k, v = draw(64)
    sinks = torch.tensor([1.0, -2.0])
    o, lse = ladder.attention(q, k, v, (ROWS > 3).expand(N, M), sinks=sinks)
    assert not o[:, :, :4].any() and torch.equal(lse[:, :, :4], sinks[:, None].expand(B, H, 4))
    whole, _ = ladder.attention(q, k, v, sinks=sinks)
    assert torch.equal(o[:, :, 4:], whole[:, :, 4:])


@pytest.mark.parametrize(
    ("mask", "choices", "message"),
    [
        (KEYS % 2 == 0, {}, "hides keys between those that a query sees"),
        (torch.zeros(N, M).half().fill_(0.5), {}, "adds a bias to the logits"),
        (torch.zeros(N, M).requires_grad_(), {}, "adds a bias to the logits"),
        (torch.stack([CAUSAL, PACKED]), {}, "differs between heads"),
        (CAUSAL[:, 1:], {}, r"attn_mask is \(20, 23\); it must be broadcastable to \(B, H, N, M\)"),
        (CAUSAL.int(), {}, r"attn_mask is torch\.int32; it must be a bool or float tensor"),
        ("causal", {}, "attn_mask is str"),
        (CAUSAL.to("meta"), {}, "attn_mask is on meta and query on cpu"),
        (CAUSAL, {"is_causal": True}, "attn_mask is given with is_causal or window_size"),
        (CAUSAL, {"window_size": (2, 0)}, "attn_mask is given with is_causal or window_size"),
    ],
)
def test_what_is_refused(mask: Any, choices: dict[str, Any], message: str) -> None:
    q, k, v = draw()
    with pytest.raises((InvalidProblem, UnsupportedProblem), match=message):
        ladder.attention(q, k, v, mask, stage="v3", **choices)


def test_a_graph_cannot_read_a_mask() -> None:
    q, k, v = draw()
    with pytest.raises(UnsupportedProblem, match="read before it is computed"):
        torch.func.vmap(lambda x: ladder.attention(x, x, x, CAUSAL[:, :N], stage="v3")[0])(q[None])
    with pytest.raises(InvalidProblem, match="4 dimensions"):
        ladder.attention(q[0], k[0], v[0], CAUSAL, stage="v3")
