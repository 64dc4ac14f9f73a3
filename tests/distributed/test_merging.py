"""Merging by lse against float64, over the whole range of lse and with parts that saw no key."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ladder.distributed import merge


def attend(s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Attention of logits s (B, H, n, m), in their dtype; a row of -inf alone gives o = 0."""
    lse = s.logsumexp(-1)
    return torch.exp(s - lse.clamp_min(-1e30)[..., None]) @ v, lse


@pytest.mark.parametrize("offset", [0.0, 5.0, -5.0, 300.0, -300.0])
def test_two_halves_of_the_keys_are_the_whole(offset: float) -> None:
    generator = torch.Generator().manual_seed(0)
    s = torch.randn(2, 3, 5, 16, generator=generator, dtype=torch.float64)
    v = torch.randn(2, 3, 16, 8, generator=generator, dtype=torch.float64)
    s[..., 8:] += offset
    exact_o, exact_lse = attend(s, v)
    (o, lse), (part_o, part_lse) = (
        (x.float() for x in attend(s[..., keys], v[:, :, keys])) for keys in (slice(8), slice(8, None))
    )
    merge(o, lse, part_o, part_lse)
    u = 2.0**-24
    # The difference of the lse errs by three roundings of numbers up to |offset| + 4.
    allowed = u * (16 + 3 * (abs(offset) + 4)) * v.abs().max()
    assert (o - exact_o).abs().max() < allowed
    assert (lse - exact_lse).abs().max() < u * 4 * (abs(offset) + 4)


def test_parts_without_keys() -> None:
    o = torch.tensor([[[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]]])
    lse = torch.tensor([[[0.5, -math.inf, -math.inf]]])
    part_o = torch.tensor([[[[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]]]).half()
    part_lse = torch.tensor([[[-math.inf, -700.0, -math.inf]]])
    merge(o, lse, part_o, part_lse)
    assert torch.equal(o, torch.tensor([[[[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]]]))
    assert torch.equal(lse, torch.tensor([[[0.5, -700.0, -math.inf]]]))


def test_what_is_no_number_stays_visible() -> None:
    o, lse = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1)
    merge(o, lse, torch.ones(1, 1, 1, 2), torch.full((1, 1, 1), math.nan))
    assert o.isnan().all() and lse.isnan().all()
