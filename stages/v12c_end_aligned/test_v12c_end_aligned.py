"""v12c's claims: only rows that exist are worked on, also if the last group has fewer heads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "v12c_end_aligned"
KEYS = {32: 128, 64: 128, 128: 80, 256: 64}  # of a tile
Q_LENGTHS = (1, 64, 65, 128, 129, 192, 193, 333)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", KEYS)
@pytest.mark.parametrize("n", Q_LENGTHS)
def test_consumers_without_rows_multiply_nothing(
    run_stage: RunStage, n: int, d: int, is_causal: bool
) -> None:
    """Each 64 rows have products with the tiles of keys that they see, and O is stored once."""
    heads, m = 3, 200
    row = run_stage(NAME, Problem(1, heads, n, m, d, is_causal=is_causal)).row
    first_rows = range(0, n, 64)
    tiles = sum(-(-(min(m, first + 64) if is_causal else m) // KEYS[d]) for first in first_rows)
    instructions = 4 * (d // 16 + KEYS[d] // 16)  # of four warps: S = Q K^T and O += P V
    assert row["wgmma_instructions"] == heads * tiles * instructions
    assert row["tma_store_instructions"] == heads * len(first_rows)
    assert row["conflicts"] == row["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", [32, 256])
@pytest.mark.parametrize("n", [1, 65, 193])
def test_items_with_idle_consumers_follow_each_other(run_stage: RunStage, n: int, d: int) -> None:
    """More items than multiprocessors: a consumer is idle in one and busy in the next, or idle in both."""
    run_stage(NAME, Problem(2, 80, n, 150, d, kv_heads=1, dtype="bf16", is_causal=True))


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (1, 16), (3, 7), (2, 80)])
def test_the_last_group_may_have_fewer_heads(
    run_stage: RunStage, batch: int, heads: int, is_causal: bool
) -> None:
    """Of each head, four consumers have rows. Their products and stores are counted once."""
    row = run_stage(NAME, Problem(batch, heads, 193, 150, 64, kv_heads=1, is_causal=is_causal)).row
    tiles = sum(-(-(min(150, first + 64) if is_causal else 150) // 128) for first in range(0, 193, 64))
    assert row["wgmma_instructions"] == batch * heads * tiles * 4 * (64 // 16 + 128 // 16)
    assert row["tma_store_instructions"] == batch * heads * 4
    assert row["conflicts"] == 0
