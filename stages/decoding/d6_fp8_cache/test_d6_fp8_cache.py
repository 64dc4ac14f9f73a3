"""d6's claims: half the bytes, converted exactly; no other products than d4; the guarantees of d4."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from ladder.call import decode_attention
from ladder.operations import DecodingProblem, get_operation
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "d6_fp8_cache"
SECTOR = 32
ALL = torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn)


def other_sectors(problem: DecodingProblem, warps: int) -> int:
    """What is read besides keys and values by blocks with one item each, and one split: each warp reads the
    lengths twice, for this item and for the next, the factor of the keys, and its rows of Q; one warp the
    factor of the values.
    """
    of_q = problem.batch * problem.heads * problem.q_len * problem.head_dim * 2 // SECTOR
    return problem.batch * problem.num_kv_heads * (3 * warps + 1) + warps * of_q


@pytest.mark.parametrize("page_size", [0, 16])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_keys_and_values_are_read_once_in_8_bits(run_stage: RunStage, d: int, page_size: int) -> None:
    lengths = (200, 101)  # keys for each warp
    problem = DecodingProblem(
        2, 8, 2, 200, d, 2, lengths=lengths, is_causal=True, page_size=page_size, e4m3=True
    )
    row = run_stage(NAME, problem).row
    needed = problem.cache_bytes // SECTOR
    assert needed == 2 * sum(lengths) * 2 * d // SECTOR
    more = row["global_sectors_ld"] - needed - other_sectors(problem, 2 if d == 256 else 4)
    assert 0 < more <= 4 * 4 * 3 if page_size else more == 0  # of the table
    assert row["conflicts"] == 0


def test_the_products_are_those_of_d4(run_stage: RunStage) -> None:
    """And ldmatrix loads twice as many elements."""
    problem = DecodingProblem(2, 8, 1, 1280, 128, kv_heads=2, lengths=(1280, 64))
    before = run_stage("d4", problem).row
    after = run_stage(NAME, replace(problem, e4m3=True)).row
    assert before["mma_instructions"] == after["mma_instructions"] > 0
    assert before["ldmatrix_instructions"] == 2 * after["ldmatrix_instructions"]


def test_every_value_is_converted_exactly() -> None:
    """With one key, o is its value times the factor, which is a power of two."""
    v = ALL.reshape(1, 1, 1, 256)
    k = torch.zeros(1, 1, 1, 256).to(torch.float8_e4m3fn)
    q = torch.zeros(1, 1, 1, 256, dtype=torch.float16)
    o, lse = decode_attention(
        q, k, v, torch.ones(1, dtype=torch.int32), k_descale=torch.ones(1), v_descale=torch.tensor([0.5])
    )
    torch.testing.assert_close(o.flatten(), ALL.float().half() / 2, rtol=0, atol=0, equal_nan=True)
    assert not lse.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_key_is_converted_exactly(dtype: torch.dtype) -> None:
    """256 queries, each of which has one element that is not 0."""
    q = torch.eye(256, dtype=dtype).reshape(2, 16, 8, 256)
    k = ALL.reshape(1, 1, 1, 256).expand(2, 1, 1, 256).contiguous().view(torch.uint8)
    k[k & 127 == 127] = 0  # NaN
    given = q, k.view(torch.float8_e4m3fn), torch.ones_like(k).view(torch.float8_e4m3fn)
    ones = torch.ones(1)
    lengths = torch.ones(2, dtype=torch.int32)
    _, lse = decode_attention(*given, lengths, k_descale=2 * ones, v_descale=ones, scale=0.5)
    expected = k[0].view(torch.float8_e4m3fn).float().flatten()
    torch.testing.assert_close(lse.flatten(), expected, rtol=2.0**-22, atol=0)


def test_a_sequence_has_the_same_bits_alone_and_in_a_batch() -> None:
    problem = DecodingProblem(3, 4, 2, 2100, 64, 2, "bf16", True, lengths=(2100, 0, 1025), e4m3=True)
    inputs: Mapping[str, Any] = get_operation("decoding").make_inputs(problem)
    scales = {name: inputs[name] for name in ("k_descale", "v_descale")}
    names = ("q", "k_cache", "v_cache", "seqused_k")
    o, lse = decode_attention(*(inputs[name] for name in names), is_causal=True, **scales)
    for b in range(3):
        one = (inputs[name][b : b + 1].contiguous() for name in names)
        o_one, lse_one = decode_attention(*one, is_causal=True, **scales)
        assert torch.equal(o_one[0], o[b]) and torch.equal(lse_one[0], lse[b])


@pytest.mark.full
def test_few_kernels_spill(spilled_bytes: Callable[..., list[int]]) -> None:
    """In f16 1,348 bytes are stored and loaded at d = 256, and 1,440 at d = 128 with tiles of 32 rows; in
    bf16 256 less.
    """
    spilled = [size for size in spilled_bytes(NAME) if size]
    assert len(spilled) <= 4 and sum(spilled) <= 2 * (1348 + 1440) - 2 * 256


@pytest.mark.full
def test_o_stays_in_registers(ptxas_report: Callable[..., str]) -> None:
    """In local memory it would take 512 bytes per thread at d = 128 with tiles of 32 rows, and at d = 256."""
    frames = [int(size) for size in re.findall(r"(\d+) bytes stack frame", ptxas_report(NAME))]
    assert frames and max(frames) < 512
