"""x6's claims: it costs what a tile's width costs, copies nothing, and refuses other head dimensions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import ladder
from ladder.call.arguments import Choices
from ladder.call.forward import prepared
from ladder.errors import UnsupportedProblem
from ladder.operations import Problem
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "x6_any_head_dim"
KEYS = {64: 128, 128: 80, 192: 112, 256: 64}  # of a tile, by its columns


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("d", [8, 40, 56, 72, 80, 96, 112, 120, 136, 160, 184, 200, 224, 248])
def test_it_computes_and_loads_whole_tiles(run_stage: RunStage, d: int, is_causal: bool) -> None:
    heads, n, m = 3, 129, 200
    row = run_stage(NAME, Problem(1, heads, n, m, d, is_causal=is_causal)).row
    columns = -(-d // 64) * 64
    blocks, keys, first_rows = columns // 64, KEYS[columns], range(0, n, 64)
    tiles = [-(-(min(m, first + 64) if is_causal else m) // keys) for first in first_rows]
    assert row["wgmma_instructions"] == heads * sum(tiles) * 4 * (columns // 16 + keys // 16)  # of four warps
    assert row["tma_store_instructions"] == heads * len(first_rows) * blocks
    assert row["conflicts"] == row["conflicts_gmma"] == 0


def test_it_counts_what_v12c_counts_at_the_width_of_the_tile(run_stage: RunStage) -> None:
    """Except for TMA, with one instruction per 64 columns."""
    narrow = run_stage(NAME, Problem(1, 2, 300, 200, 96, dtype="f16", is_causal=True)).row
    wide = run_stage("v12c", Problem(1, 2, 300, 200, 128, dtype="f16", is_causal=True)).row
    for column in ("wgmma_instructions", "wavefronts_gmma", "wavefronts_ld", "wavefronts_st"):
        assert narrow[column] == wide[column], column
    for column in ("tma_load_instructions", "tma_store_instructions"):
        assert narrow[column] == 2 * wide[column], column


def tensors(d: int, *, heads_last: bool) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (2, 70, 3, d) if heads_last else (2, 3, 70, d)
    found = [torch.randn(shape, dtype=torch.float16) for _ in range(3)]
    return [x.transpose(1, 2) for x in found] if heads_last else found


@pytest.mark.parametrize("d", [40, 80, 160])
@pytest.mark.parametrize("heads_last", [False, True], ids=["contiguous", "heads last"])
def test_the_call_takes_tensors_as_they_lie(d: int, heads_last: bool) -> None:
    query, key, value = tensors(d, heads_last=heads_last)
    o, _ = ladder.attention(query, key, value, is_causal=True)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query.float(), key.float(), value.float(), is_causal=True
    )
    assert torch.allclose(o.float(), expected, rtol=0, atol=2.0**-9)
    run = prepared(query, key, value, None, Choices(is_causal=True))
    assert run.name == f"ladder::{NAME}" and run.copied == []


def test_rows_that_tma_cannot_read_are_copied() -> None:
    """Slices of a wider tensor whose rows begin 2 bytes beside a multiple of 16."""
    query, key, value = (x[..., :80] for x in tensors(81, heads_last=False))
    assert prepared(query, key, value, None, Choices(is_causal=True)).copied == ["q", "k", "v"]


@pytest.mark.parametrize("d", [20, 100, 257])
def test_other_head_dimensions_are_refused(d: int) -> None:
    query, key, value = tensors(d, heads_last=False)
    with pytest.raises(UnsupportedProblem, match=f"no stage takes d = {d}"):
        ladder.attention(query, key, value)
