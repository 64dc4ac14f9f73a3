"""x2b's claims: a block loads the tiles of queries that see its keys; rows without keys have no gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ladder.operations import BackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x2b_window_gradients"
KEYS, QUERIES = 128, 128  # of a block and of a tile, d = 64


def steps_of(n: int, m: int, window: tuple[int, int]) -> int:
    """The tiles of queries that blocks of keys need, counted row by row."""
    left, right = (m + n if side < 0 else side for side in window)
    seen = {
        (i // QUERIES, j // KEYS) for i in range(n) for j in range(m) if -left <= j - (i + m - n) <= right
    }
    return len(seen)


@pytest.mark.parametrize(
    ("n", "m", "window"),
    [
        (600, 600, (100, 0)),
        (600, 600, (0, 0)),
        (300, 700, (50, 70)),
        (500, 100, (-1, 0)),
        (300, 200, (33, -1)),
    ],
)
def test_tiles_that_see_no_key_of_a_block_are_not_loaded(
    run_stage: RunStage, n: int, m: int, window: tuple[int, int]
) -> None:
    row = run_stage(NAME, BackwardProblem(1, 1, n, m, 64, window=window)).row
    blocks, steps = -(-m // KEYS), steps_of(n, m, window)
    assert row["tma_load_instructions"] == 2 * blocks + 4 * steps
    assert row["conflicts_gmma"] == 0


def test_rows_without_keys_have_no_gradient(run_stage: RunStage) -> None:
    """Of 300 queries and 40 keys the first 260 are before key 0, and their lse is -inf; it has a gradient."""
    problem = BackwardProblem(1, 1, 300, 40, 64, window=(-1, 0), lse_gradient=True)
    dq = torch.as_tensor(run_stage(NAME, problem).execution.outputs["dq"])[0, 0]
    assert not dq[:260].any() and dq[260:].any(-1).all()
