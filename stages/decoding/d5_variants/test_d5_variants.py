"""d5's claims: what a window hides is not read; without a variant it counts what d4 counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ladder.call import decode_attention
from ladder.operations import DecodingProblem, get_operation
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "d5_variants"


@pytest.mark.parametrize("page_size", [0, 16])
@pytest.mark.parametrize("window", [0, 15, 500])
def test_what_a_window_hides_is_not_read(run_stage: RunStage, window: int, page_size: int) -> None:
    """As many sectors as for a sequence that begins with the window's first tile, from the same blocks."""
    problem = DecodingProblem(
        1, 8, 2, 5000, 64, kv_heads=2, is_causal=True, window=window, page_size=page_size, dtype="f16"
    )
    first = (5000 - 2 - window) // 16 * 16
    short = replace(problem, lengths=(5000 - first,), window=None)
    found, expected = (run_stage(NAME, one).row for one in (problem, short))
    for column in ("global_sectors_ld", "global_sectors_st", "mma_instructions"):
        if page_size and column == "global_sectors_ld":
            # A look-up of 32 entries may touch one sector more, where it begins within one.
            assert abs(found[column] - expected[column]) <= 2 * 4
        else:
            assert found[column] == expected[column]


def test_without_a_variant_it_counts_what_d4_counts(run_stage: RunStage) -> None:
    problem = DecodingProblem(2, 8, 2, 900, 64, kv_heads=2, lengths=(900, 70), is_causal=True)
    before, after = (run_stage(name, problem).row for name in ("d4", NAME))
    for column in ("global_sectors_ld", "global_sectors_st", "mma_instructions", "ldmatrix_instructions"):
        assert after[column] == before[column]


def test_a_sequence_has_the_same_bits_alone_and_in_a_batch() -> None:
    problem = DecodingProblem(
        3, 4, 2, 2100, 64, 2, lengths=(2100, 0, 513), is_causal=True, window=1300, softcap=9.0, sinks=True
    )
    inputs = get_operation("decoding").make_inputs(replace(problem, dtype="bf16"))
    variants = {"window_size": (1300, 0), "softcap": 9.0, "sinks": inputs["sinks"], "stage": NAME}
    names = ("q", "k_cache", "v_cache", "seqused_k")
    o, lse = decode_attention(*(inputs[name] for name in names), **variants)
    for b in range(3):
        alone = decode_attention(*(inputs[name][b : b + 1].contiguous() for name in names), **variants)
        assert torch.equal(alone[0][0], o[b]) and torch.equal(alone[1][0], lse[b])
    # Without keys, but for the rounding of log2(e) and ln(2).
    torch.testing.assert_close(lse[1], inputs["sinks"][:, None].expand(4, 2), rtol=1e-6, atol=0)
