"""n3's claims: P is not in shared memory, and the products are n2's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]
Executed = Callable[[Evaluation, str], int]

NAME, BEFORE = "n3_p_in_tmem", "n2"


@pytest.mark.parametrize("d", [64, 128])
def test_p_is_not_stored_to_shared_memory(run_stage: RunStage, executed: Executed, d: int) -> None:
    blocks, tiles = 2 * 2, 3
    problem = Problem(1, 2, 200, 300, d)
    before, after = (run_stage(name, problem) for name in (BEFORE, NAME))
    assert before.row["wavefronts_st"] == blocks * tiles * 128 * 128 * 2 // 128
    assert after.row["wavefronts_st"] == 0
    assert before.row["mma_instructions"] == after.row["mma_instructions"]
    words = 8 * 32  # of a store of .16x128b.x4 by a warp
    assert words * executed(after, "tcgen05.st.sync.aligned.16x128b") == blocks * tiles * 128 * 64
