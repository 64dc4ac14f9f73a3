"""What one block of a persistent kernel computes."""

from __future__ import annotations

import pytest

from ladder.operations import Problem
from ladder.run.evaluation import rows_of_first_block
from ladder.stages import discover


@pytest.mark.parametrize(
    ("multiprocessors", "heads"), [(1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3]), (5, [0]), (9, [0])]
)
def test_block_0_takes_every_so_many_work_items(multiprocessors: int, heads: list[int]) -> None:
    """An item per head."""
    problem = Problem(1, 5, 100, 64, 64, dtype="f16")
    stage = discover()["v11"].narrowed([problem])
    assert rows_of_first_block(stage, problem, multiprocessors) == {head: [*range(100)] for head in heads}


def test_rows_that_it_does_not_compute_are_left_out() -> None:
    """The last 192 rows of a head come first."""
    problem = Problem(2, 1, 300, 300, 64, is_causal=True, dtype="f16")
    stage = discover()["v11"].narrowed([problem])
    assert rows_of_first_block(stage, problem, 3) == {0: [*range(192, 300)], 1: [*range(192)]}
