"""h8's claims: only tiles in which a query sees a key of the block, none of another sequence, no conflict."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch

import ladder
from ladder.operations import HstuBackwardProblem, HstuProblem
from ladder.operations.hstu.inputs import make_inputs
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h8_wgmma_gradients"
#: A block's keys, and the queries of a tile.
KEYS, QUERIES = 128, {64: 128, 128: 64}
#: Per consumer and tile. S and dP: d / 16 each; dV and dK: queries / 16 each; dQ: keys / 16.
A_TILE = {d: 2 * (d // 16) + 2 * (queries // 16) + KEYS // 16 for d, queries in QUERIES.items()}


def masks(problem: HstuProblem) -> Iterator[torch.Tensor]:
    intervals = make_inputs(problem)["intervals"]
    first = 0
    for b in range(problem.batch):
        n, m, contexts, targets = problem.sequence(b)
        columns = None if intervals is None else intervals[:, first : first + n]
        yield ladder.hstu_mask(n, m, contexts, targets, problem.target_group_size, problem.window, columns)
        first += n


def tiles_with_a_visible_element(problem: HstuProblem) -> int:
    """By brute force: of all sequences, the tiles of queries that see a key of a block."""
    return sum(
        bool(tile.any())
        for mask in masks(problem)
        for rows in mask.split(QUERIES[problem.head_dim], 0)
        for tile in rows.split(KEYS, 1)
    )


def random_problems(count: int) -> Iterator[HstuBackwardProblem]:
    chance = random.Random(0)
    for i in range(count):
        lengths = [(n, chance.randint(n, 500)) for n in (chance.randint(1, 300), chance.randint(1, 150))]
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
        d = (64, 128)[i % 2]
        yield HstuBackwardProblem(1, d, q_lens, kv_lens, dtype=("f16", "bf16")[i // 2 % 2], **mask)  # type: ignore[arg-type]


#: Two sequences with keys and without queries.
NO_QUERIES = HstuBackwardProblem(1, 128, (0, 70, 0), (300, 70, 5), dtype="bf16")


@pytest.mark.parametrize("problem", [*random_problems(20), NO_QUERIES], ids=str)
def test_multiplies_the_tiles_that_the_mask_needs_and_no_others(
    run_stage: RunStage, problem: HstuBackwardProblem
) -> None:
    row = run_stage(NAME, problem).row
    consumers, warps = 2, 4  # each warp counts
    tiles = tiles_with_a_visible_element(problem)
    assert row["wgmma_instructions"] == tiles * A_TILE[problem.head_dim] * consumers * warps
    assert row["conflicts_gmma"] == 0


@pytest.mark.parametrize("d", [64, 128])
def test_no_load_and_no_store_conflicts_without_a_cut_tile(run_stage: RunStage, d: int) -> None:
    row = run_stage(NAME, HstuBackwardProblem(1, d, (256,), window=(-1, -1), dtype="bf16")).row
    assert row["conflicts"] == 0


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nothing_of_another_sequence_reaches_this_one(d: int, bad: float) -> None:
    """The tiles of the first sequence reach into the rows of the next one, which are no numbers."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, d_o = (torch.randn(90 + 70, 1, d, generator=generator).bfloat16() for _ in range(4))
    ends = torch.tensor([0, 90, 160], dtype=torch.int32)
    for x in (q, k, v, d_o):
        x[90:] = bad

    def gradients(tokens: int, ends: torch.Tensor) -> list[torch.Tensor]:
        leaves = [x[:tokens].clone().requires_grad_() for x in (q, k, v)]
        o = ladder.hstu_attention(*leaves, ends, scaling_seqlen=90, arch="sm_90a", backward=NAME)
        return [x[:90] for x in torch.autograd.grad(o, leaves, d_o[:tokens])]

    for both, alone in zip(gradients(160, ends), gradients(90, ends[:2]), strict=True):
        assert torch.equal(both, alone)
        assert not alone.isnan().any()
