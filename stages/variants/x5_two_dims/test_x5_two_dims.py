"""x5's claims: the products of 192 and of 128 columns, one store of O per 64 rows, and no bank conflicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import ladder
from ladder.errors import UnsupportedProblem
from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x5_two_dims"


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("n", [1, 64, 129, 333])
def test_logits_take_192_columns_and_outputs_128(run_stage: RunStage, n: int, is_causal: bool) -> None:
    heads, m = 3, 200
    row = run_stage(NAME, Problem(1, heads, n, m, 192, is_causal=is_causal)).row
    first_rows = range(0, n, 64)
    tiles = sum(-(-(min(m, first + 64) if is_causal else m) // 80) for first in first_rows)
    assert row["wgmma_instructions"] == heads * tiles * 4 * (192 // 16 + 80 // 16)  # of four warps
    assert row["tma_store_instructions"] == heads * len(first_rows)
    assert row["conflicts"] == row["conflicts_gmma"] == 0


def test_the_call_takes_values_of_128_columns() -> None:
    query, key = (torch.randn(1, 2, 70, 192, dtype=torch.float16) for _ in range(2))
    value = torch.randn(1, 2, 70, 128, dtype=torch.float16)
    o, _ = ladder.attention(query, key, value)
    expected = torch.nn.functional.scaled_dot_product_attention(query.float(), key.float(), value.float())
    assert o.shape == (1, 2, 70, 128)
    assert torch.allclose(o.float(), expected, rtol=0, atol=2.0**-9)
    compiled = torch.compile(ladder.attention, backend="eager", fullgraph=True)
    assert torch.equal(compiled(query, key, value)[0], o)


def test_other_values_and_gradients_are_refused() -> None:
    query, key = (torch.randn(1, 2, 70, 192, dtype=torch.float16) for _ in range(2))
    with pytest.raises(UnsupportedProblem, match="takes value of 128"):
        ladder.attention(query, key, key)
    value = torch.randn(1, 2, 70, 128, dtype=torch.float16, requires_grad=True)
    with pytest.raises(UnsupportedProblem, match="no backward stage"):
        ladder.attention(query, key, value)
