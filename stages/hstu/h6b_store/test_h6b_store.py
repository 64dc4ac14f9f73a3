"""h6b's claims: h6's products and loads, O stored by TMA alone, and nothing stored into the next sequence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h6b_store"
#: A consumer's queries, and the consumers of a block.
ROWS, CONSUMERS = 64, {32: 3, 64: 3, 128: 3, 256: 2}
#: Sequences that end within a consumer's rows, at their end, and within those of another consumer.
LENGTHS = (100, 64, 1, 250)


@pytest.mark.parametrize("d", CONSUMERS)
def test_o_is_stored_by_tma_alone(run_stage: RunStage, d: int) -> None:
    problem = HstuProblem(3, d, LENGTHS, contexts=(5, 0, 0, 70), targets=(20, 0, 1, 100))
    before, after = (run_stage(name, problem).row for name in ("h6", NAME))
    for column in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions"):
        assert after[column] == before[column] > 0
    items = 3 * sum(-(-n // (ROWS * CONSUMERS[d])) for n in LENGTHS)
    assert after["tma_store_instructions"] == items * CONSUMERS[d]
    assert after["global_sectors_st"] == 0
    assert after["conflicts"] == after["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", [64, 256])
def test_items_follow_each_other_in_the_same_buffers(run_stage: RunStage, d: int) -> None:
    """More items than multiprocessors, in which a consumer has tiles, none, or no rows."""
    run_stage(NAME, HstuProblem(50, d, (200, 70, 1), window=(10, 0), dtype="bf16"))
