"""h7d's claims: the bias is added by no instruction, and only tiles of it that are needed are loaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import ladder
from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h7d_bias"
KEYS, ROWS, CONSUMERS = 64, 64, 3


@pytest.mark.parametrize("bias_heads", [1, 2])
@pytest.mark.parametrize("d", [32, 64, 128])
def test_each_tile_of_keys_has_a_tile_of_the_bias(run_stage: RunStage, d: int, bias_heads: int) -> None:
    """Of the keys that an item's last row sees; K and V are loaded whole, the bias by consumer. The products
    are those of a kernel without a bias: S begins with it."""
    heads, lengths = 2, (70, 333)
    row = run_stage(NAME, HstuProblem(heads, d, lengths, bias_heads=bias_heads)).row
    ends = [[*range(ROWS, length + ROWS, ROWS)] for length in lengths]  # of consumers' rows
    multiplied = sum(
        -(-min(length, end) // KEYS) for length, all_ in zip(lengths, ends, strict=True) for end in all_
    )
    loaded = sum(
        -(-min(length, end) // KEYS)
        for length, all_ in zip(lengths, ends, strict=True)
        for end in all_[::-CONSUMERS]
    )
    consumers = sum(map(len, ends))
    assert row["wgmma_instructions"] == heads * multiplied * 4 * (d // 16 + KEYS // 16)
    assert row["tma_load_instructions"] == heads * (consumers + loaded * (2 + CONSUMERS))
    assert row["conflicts"] == row["conflicts_gmma"] == 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_past_the_sequences_end_in_the_bias_is_not_used(bad: float) -> None:
    """The bias has rows and columns for the longest sequence of the batch. No mask hides these."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(90 + 150, 1, 64, generator=generator).bfloat16() for _ in range(3))
    ends = torch.tensor([0, 90, 240], dtype=torch.int32)
    rab = torch.randn(2, 1, 150, 150, generator=generator).bfloat16()
    every_key = {"window": (-1, -1), "stage": NAME}
    expected = ladder.hstu_attention(q, k, v, ends, rab=rab, **every_key)
    rab[0, :, 90:] = bad
    rab[0, :, :, 90:] = bad
    assert torch.equal(ladder.hstu_attention(q, k, v, ends, rab=rab, **every_key), expected)
    assert not expected.isnan().any()
