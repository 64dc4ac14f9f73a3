"""h6's claims: only tiles in which a query sees a key, nothing of another sequence, no conflict."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

import ladder
from ladder.operations import HstuProblem
from ladder.operations.hstu.inputs import make_inputs
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h6_wgmma"
HEAD_DIMS = (32, 64, 128, 256)
#: A consumer's queries, and a tile's keys.
ROWS, KEYS = 64, {32: 128, 64: 128, 128: 80, 256: 64}


def masks(problem: HstuProblem) -> Iterator[torch.Tensor]:
    intervals = make_inputs(problem)["intervals"]
    first = 0
    for b in range(problem.batch):
        n, m, contexts, targets = problem.sequence(b)
        columns = None if intervals is None else intervals[:, first : first + n]
        yield ladder.hstu_mask(n, m, contexts, targets, problem.target_group_size, problem.window, columns)
        first += n


def tiles_with_a_visible_element(problem: HstuProblem) -> int:
    """By brute force: of all sequences, the tiles of a consumer's queries and a tile's keys."""
    return sum(
        bool(tile.any())
        for mask in masks(problem)
        for rows in mask.split(ROWS, 0)
        for tile in rows.split(KEYS[problem.head_dim], 1)
    )


def random_problems(count: int) -> Iterator[HstuProblem]:
    chance = random.Random(0)
    for i in range(count):
        lengths = [(n, chance.randint(n, 400)) for n in (chance.randint(1, 300), chance.randint(1, 150))]
        q_lens, kv_lens = zip(*lengths, strict=True)
        mask: dict[str, object] = {}
        kind = ("window", "targets", "intervals", "contexts", "both")[i % 5]
        if kind == "window":
            mask["window"] = (chance.randint(-1, 150), chance.randint(-1, 100))
        if kind in ("contexts", "both"):
            mask["contexts"] = tuple(chance.randint(0, m // 3) for m in kv_lens)
        if kind in ("targets", "both"):
            mask["targets"] = tuple(chance.randint(0, m // 2) for m in kv_lens)
            mask["target_group_size"] = chance.choice([1, 3, 16, 70])
        if kind == "intervals":
            mask["intervals"] = True
        d = HEAD_DIMS[i % len(HEAD_DIMS)]
        yield HstuProblem(1, d, q_lens, kv_lens, dtype=("f16", "bf16")[i % 2], **mask)  # type: ignore[arg-type]


@pytest.mark.parametrize("problem", [*random_problems(20)], ids=str)
def test_multiplies_the_tiles_that_the_mask_needs_and_no_others(
    run_stage: RunStage, problem: HstuProblem
) -> None:
    row = run_stage(NAME, problem).row
    d, keys = problem.head_dim, KEYS[problem.head_dim]
    a_tile = 4 * (d // 16 + keys // 16)  # each of four warps counts
    assert row["wgmma_instructions"] == tiles_with_a_visible_element(problem) * a_tile
    assert row["conflicts"] == row["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", HEAD_DIMS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nothing_of_another_sequence_reaches_this_one(d: int, bad: float) -> None:
    """The tiles of the first sequence reach into the rows of the next one, which are no numbers."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(90 + 70, 1, d, generator=generator).bfloat16() for _ in range(3))
    ends = torch.tensor([0, 90, 160], dtype=torch.int32)
    for x in (q, k, v):
        x[90:] = bad
    both = ladder.hstu_attention(q, k, v, ends, scaling_seqlen=90, stage=NAME)
    first = (q[:90], k[:90], v[:90], ends[:2])
    alone = ladder.hstu_attention(*first, scaling_seqlen=90, stage=NAME)
    assert torch.equal(both[:90], alone)
    assert not alone.isnan().any()
