"""Merging by lse against float64, over the whole range of lse and with parts that saw no key."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch
from torch import Tensor

import ladder
from ladder.call.distributed import merge


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


def test_o_of_16_bits_is_rounded_once() -> None:
    generator = torch.Generator().manual_seed(0)
    o, part_o = (torch.randn(1, 2, 8, 32, generator=generator).bfloat16() for _ in range(2))
    lse, part_lse = (torch.randn(1, 2, 8, generator=generator) for _ in range(2))
    in_fp32, its_lse = o.float(), lse.clone()
    merge(in_fp32, its_lse, part_o, part_lse)
    merge(o, lse, part_o, part_lse)
    assert torch.equal(o, in_fp32.bfloat16()) and torch.equal(lse, its_lse)


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_kernel_of_gpus_merges_the_same(dtype: torch.dtype) -> None:
    """Triton's kernel on the emulator, with rows of a larger tensor, of which some saw no key of a part."""
    from ladder.call.distributed.fused import launch

    generator = torch.Generator().manual_seed(0)
    o, lse = (
        torch.randn(2, 3, 85, 64, generator=generator).to(dtype),
        torch.randn(2, 3, 85, generator=generator),
    )
    part_o = torch.randn(140, 3, 64, generator=generator).bfloat16().transpose(0, 1).unflatten(1, (2, 70))
    part_o, part_lse = part_o.transpose(0, 1), 20 * torch.randn(2, 3, 70, generator=generator)
    lse[0, 0, 17:20] = part_lse[0, 0, :3] = part_lse[1, 2, -1] = -math.inf
    o[0, 0, 17:20] = 0
    part_o[0, 0, :3] = part_o[1, 2, -1] = 0
    expected_o, expected_lse, untouched = o.clone(), lse.clone(), o[:, :, :15].clone()
    merge(expected_o[:, :, 15:], expected_lse[:, :, 15:], part_o, part_lse)
    with ladder.counting("sm_90a") as counted:
        launch(o[:, :, 15:], lse[:, :, 15:], part_o, part_lse)
    assert [one.grid for one in counted.launches] == [(12, 1, 1)]
    assert torch.equal(o[:, :, :15], untouched)
    torch.testing.assert_close(o, expected_o)
    torch.testing.assert_close(lse, expected_lse, rtol=1e-6, atol=1e-6)
