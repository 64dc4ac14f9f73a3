"""b0's claims: no shared memory, no atomics, no barrier."""

from __future__ import annotations

from collections.abc import Callable

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]


def test_threads_neither_share_nor_add(run_stage: RunStage) -> None:
    result = run_stage("b0_scalar", BackwardProblem(1, 2, 40, 50, 64, kv_heads=1, is_causal=True))
    executed = {
        word
        for launch in result.execution.launches
        for word in launch.instructions()["ptx"].str.split(".").str[0]
    }
    assert "fma" in executed and not executed & {"red", "atom", "bar"}
    assert result.row["shared_load_instructions"] == result.row["shared_store_instructions"] == 0
