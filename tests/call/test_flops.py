"""Operations that torch counts in calls of the ladder."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count

import ladder
from ladder import UnsupportedProblem


def tensors(*shape: int, dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.randn(3, *shape, dtype=dtype).unbind()
    return q.requires_grad_(), k, v


def test_attention_counts_what_torchs_counts() -> None:
    q, k, v = tensors(1, 2, 40, 64)
    with FlopCounterMode(display=False) as ours:
        o, _ = ladder.attention(q, k, v, is_causal=True, stage="v3")
        forward = ours.get_total_flops()
        o.sum().backward()
    with FlopCounterMode(display=False) as of_torch, sdpa_kernel(SDPBackend.MATH):
        scaled_dot_product_attention(q, k, v, is_causal=True)
    assert forward == of_torch.get_total_flops()
    assert ours.get_total_flops() == forward + sdpa_backward_flop_count(*[(1, 2, 40, 64)] * 4)


def test_sequences_count_the_pairs_of_each() -> None:
    q, k, v = tensors(30, 2, 64)
    offsets = torch.tensor([0, 10, 30], dtype=torch.int32)
    of_products = 2 * 2 * 64 * (10 * 10 + 20 * 20)
    with FlopCounterMode(display=False) as counter:
        ladder.varlen_attention(q, k, v, offsets, offsets, 20, 20).sum().backward()
    assert counter.get_total_flops() == (2 + 5) * of_products
    with FlopCounterMode(display=False) as counter:
        ladder.hstu_attention(q, k, v, offsets).sum().backward()
    assert counter.get_total_flops() == (2 + 5) * of_products


def test_decoding_counts_the_keys_that_sequences_have() -> None:
    query = torch.randn(2, 4, 1, 64, dtype=torch.float16)
    cache = torch.randn(2, 2, 50, 64, dtype=torch.float16)
    lengths = torch.tensor([50, 7], dtype=torch.int32)
    with FlopCounterMode(display=False) as counter:
        ladder.decode_attention(query, cache, cache, lengths)
    assert counter.get_total_flops() == 4 * 4 * 64 * (50 + 7)
    fakes = torch._subclasses.FakeTensorMode()
    with fakes, FlopCounterMode(display=False), pytest.raises(UnsupportedProblem, match="without data"):
        ladder.decode_attention(*(fakes.from_tensor(x) for x in (query, cache, cache, lengths)))
