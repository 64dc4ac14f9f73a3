"""h8a's claims: the tiles below the diagonal and no others, one special function per weight, no conflict."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import ladder
from ladder.operations import HstuBackwardProblem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h8a_silu_gradients"
#: A block's keys, and the queries of a tile.
KEYS, QUERIES = 128, {64: 128, 128: 64}
#: Per consumer and tile. S and dP: d / 16 each; dV and dK: queries / 16 each; dQ: keys / 16.
A_TILE = {d: 2 * (d // 16) + 2 * (queries // 16) + KEYS // 16 for d, queries in QUERIES.items()}


def tiles_below_the_diagonal(n: int, m: int, queries: int) -> int:
    """By brute force: the tiles of ``n`` queries and ``m`` keys, of which the queries are the last."""
    mask = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    return sum(bool(tile.any()) for rows in mask.split(queries) for tile in rows.split(KEYS, 1))


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("lengths", [((256,), (256,)), ((100, 0, 300), (150, 40, 300)), ((70,), (400,))])
def test_multiplies_the_tiles_below_the_diagonal(
    run_stage: RunStage, d: int, lengths: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    row = run_stage(NAME, HstuBackwardProblem(2, d, *lengths, dtype="f16")).row
    tiles = sum(tiles_below_the_diagonal(n, m, QUERIES[d]) for n, m in zip(*lengths, strict=True) if n)
    heads, consumers, warps = 2, 2, 4  # each warp counts
    assert row["wgmma_instructions"] == heads * tiles * A_TILE[d] * consumers * warps
    assert row["conflicts"] == 0


def test_one_special_function_per_weight(run_stage: RunStage) -> None:
    """One tile of 128 queries and 128 keys at d = 64: 64 weights per thread of a consumer."""
    evaluation = run_stage(NAME, HstuBackwardProblem(1, 64, (128,), dtype="f16"))
    counted = [launch.instructions() for launch in evaluation.execution.launches]
    special = sum(
        int(table[table["ptx"].str.contains("approx")]["executed"].sum()) for table in counted if len(table)
    )
    assert special == 2 * 4 * 64


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
