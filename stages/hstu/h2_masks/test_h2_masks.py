"""h2's claims: only tiles in which a query sees a key are multiplied, and no access conflicts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

import ladder
from ladder.operations import HstuProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

#: A warp's queries and a tile's keys at d = 64.
ROWS, KEYS = 32, 32


def masks(problem: HstuProblem, intervals: torch.Tensor | None) -> Iterator[torch.Tensor]:
    first = 0
    for b in range(problem.batch):
        n, m, contexts, targets = problem.sequence(b)
        columns = None if intervals is None else intervals[:, first : first + n]
        yield ladder.hstu_mask(n, m, contexts, targets, problem.target_group_size, problem.window, columns)
        first += n


def tiles_with_a_visible_element(problem: HstuProblem, intervals: torch.Tensor | None) -> int:
    """By brute force: of all sequences, the tiles of a warp's queries and KEYS keys."""
    return sum(
        bool(tile.any())
        for mask in masks(problem, intervals)
        for rows in mask.split(ROWS, 0)
        for tile in rows.split(KEYS, 1)
    )


def random_problems(count: int) -> Iterator[HstuProblem]:
    chance = random.Random(0)
    for _ in range(count):
        lengths = [(n, chance.randint(n, 400)) for n in (chance.randint(1, 300), chance.randint(1, 150))]
        q_lens, kv_lens = zip(*lengths, strict=True)
        mask: dict[str, object] = {}
        kind = chance.choice(["window", "targets", "intervals", "contexts", "both"])
        if kind == "window":
            mask["window"] = (chance.randint(-1, 150), chance.randint(-1, 100))
        if kind in ("contexts", "both"):
            mask["contexts"] = tuple(chance.randint(0, m // 3) for m in kv_lens)
        if kind in ("targets", "both"):
            mask["targets"] = tuple(chance.randint(0, m // 2) for m in kv_lens)
            mask["target_group_size"] = chance.choice([1, 3, 16, 70])
        if kind == "intervals":
            mask["intervals"] = True
        yield HstuProblem(1, 64, q_lens, kv_lens, dtype="f16", **mask)  # type: ignore[arg-type]


@pytest.mark.parametrize("problem", [*random_problems(20)], ids=str)
def test_multiplies_the_tiles_that_the_mask_needs_and_no_others(
    run_stage: RunStage, problem: HstuProblem
) -> None:
    from ladder.operations.hstu.inputs import make_inputs

    row = run_stage("h2_masks", problem).row
    tiles = tiles_with_a_visible_element(problem, make_inputs(problem)["intervals"])
    a_tile = 2 * (ROWS // 16) * (KEYS // 8) * (problem.head_dim // 16)
    assert row["mma_instructions"] == tiles * a_tile
    assert row["conflicts"] == 0
