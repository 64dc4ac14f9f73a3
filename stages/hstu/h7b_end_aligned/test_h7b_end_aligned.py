"""h7b's claims: only rows that exist are loaded, worked on and stored, and the ragged tile sees few keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h7b_end_aligned"
#: A consumer's queries, the consumers of a block, and a tile's keys.
ROWS, CONSUMERS, KEYS = 64, {32: 3, 64: 3, 128: 3, 256: 2}, {32: 128, 64: 128, 128: 80, 256: 64}


@pytest.mark.parametrize("d", KEYS)
@pytest.mark.parametrize("n", [1, 64, 65, 128, 129, 192, 193, 333])
def test_consumers_without_rows_load_multiply_and_store_nothing(run_stage: RunStage, n: int, d: int) -> None:
    """Each 64 rows have one load of Q, products with the tiles of keys that they see, and one store of O. An
    item loads the tiles that its last row sees. The sequence has neighbours on both sides."""
    heads, lengths = 2, (70, n, 100)
    row = run_stage(NAME, HstuProblem(heads, d, lengths)).row
    ends = [[*range(ROWS, length + ROWS, ROWS)] for length in lengths]  # of consumers' rows, multiples of 64
    tiles = sum(
        -(-min(length, end) // KEYS[d]) for length, all_ in zip(lengths, ends, strict=True) for end in all_
    )
    loaded = sum(
        -(-min(length, end) // KEYS[d])
        for length, all_ in zip(lengths, ends, strict=True)
        for end in all_[:: -CONSUMERS[d]]  # the last consumer of each item
    )
    consumers = sum(len(all_) for all_ in ends)
    instructions = 4 * (d // 16 + KEYS[d] // 16)  # of four warps: S = Q K^T and O += P V
    assert row["wgmma_instructions"] == heads * tiles * instructions
    assert row["tma_load_instructions"] == heads * (consumers + 2 * loaded)
    assert row["tma_store_instructions"] == heads * consumers
    assert row["conflicts"] == row["conflicts_gmma"] == 0


MASKS = [
    HstuProblem(2, 64, (250, 130, 333), contexts=(3, 100, 0), targets=(40, 1, 0), target_group_size=3),
    HstuProblem(2, 128, (130, 70), (300, 200), window=(50, 20), dtype="bf16"),
    HstuProblem(2, 256, (200, 129), intervals=True, dtype="bf16"),
]


@pytest.mark.parametrize("problem", MASKS, ids=str)
def test_products_are_those_of_h6(run_stage: RunStage, problem: HstuProblem) -> None:
    """The consumers' rows begin at the same multiples of 64."""
    before, after = (run_stage(name, problem).row for name in ("h6_wgmma", NAME))
    assert after["wgmma_instructions"] == before["wgmma_instructions"] > 0


@pytest.mark.parametrize("d", [32, 256])
@pytest.mark.parametrize("n", [1, 65, 193])
def test_items_with_idle_consumers_follow_each_other(run_stage: RunStage, n: int, d: int) -> None:
    """More items than multiprocessors: a consumer is idle in one and busy in the next, or idle in both."""
    run_stage(NAME, HstuProblem(80, d, (n, 150), contexts=(1, 2), dtype="bf16"))
