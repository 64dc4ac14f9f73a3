"""h5b's claims: v11's products and loads, and one special function per weight; sequences of any lengths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import ladder
from ladder.operations import HstuProblem, Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "h5b_wgmma"


@pytest.mark.parametrize("d", [64, 256])
def test_products_and_loads_are_those_of_v11(run_stage: RunStage, d: int) -> None:
    """Of one sequence whose length is a multiple of a work item's rows, with a causal mask."""
    before = run_stage("v11", Problem(1, 2, 384, 384, d, is_causal=True, dtype="f16")).row
    after = run_stage(NAME, HstuProblem(2, d, (384,), dtype="f16")).row
    for column in ("wgmma_instructions", "wavefronts_gmma", "tma_load_instructions"):
        assert after[column] == before[column] > 0
    assert after["conflicts"] == after["conflicts_gmma"] == 0


def test_one_special_function_per_weight(run_stage: RunStage) -> None:
    """A tile has 64 x 128 weights, 64 per thread of a warpgroup; 64 queries see one tile. With a softmax, l
    and lse would need more."""
    evaluation = run_stage(NAME, HstuProblem(1, 64, (64,), dtype="f16"))
    instructions = evaluation.execution.launches[0].instructions()
    special = instructions[instructions["ptx"].str.contains("approx")]
    assert int(special["executed"].sum()) == 4 * 64


@pytest.mark.parametrize("d", [64, 128])
def test_the_next_sequences_values_are_not_used(d: int) -> None:
    """A box of TMA reaches into the next sequence, whose keys may be infinite and whose values NaN."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(100 + 30, 1, d, generator=generator).half() for _ in range(3))
    ends = torch.tensor([0, 100, 130], dtype=torch.int32)
    expected = ladder.hstu_attention(q, k, v, ends, stage=NAME)[:100]
    k[100:], v[100:] = torch.inf, torch.nan
    assert torch.equal(ladder.hstu_attention(q, k, v, ends, stage=NAME)[:100], expected)
    assert not expected.isnan().any()
