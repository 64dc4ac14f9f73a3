"""d4's claims: one launch; the same bits alone, in a batch and on any GPU; the last block merges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ladder.call import decode_attention
from ladder.operations import DecodingProblem, get_operation
from ladder.run.evaluation import Evaluation

RunStage = Callable[..., Evaluation]

NAME = "d4_one_launch"


@pytest.mark.parametrize("lengths", [(1300, 0, 1025, 70), (1300,), (1,), (0,), (1024, 1023, 1025)])
def test_there_is_one_launch(run_stage: RunStage, lengths: tuple[int, ...]) -> None:
    problem = DecodingProblem(len(lengths), 4, 1, 1300, 64, kv_heads=2, lengths=lengths)
    assert len(run_stage(NAME, problem).execution.launches) == 1


@pytest.mark.parametrize("page_size", [0, 16])
def test_a_sequence_has_the_same_bits_alone_and_in_a_batch(page_size: int) -> None:
    lengths = (1300, 40, 2100, 1025)
    problem = DecodingProblem(
        4, 4, 2, 2100, 64, kv_heads=2, lengths=lengths, page_size=page_size, dtype="bf16", is_causal=True
    )
    inputs = get_operation("decoding").make_inputs(problem)
    o, lse = call(inputs)
    for b in range(4):
        for batch in ([b], [(b + 1) % 4, b, b]):
            some = {
                name: x if x is None or (page_size and name.endswith("cache")) else x[batch].contiguous()
                for name, x in inputs.items()
            }
            o_some, lse_some = call(some)
            for i, number in enumerate(batch):
                assert torch.equal(o_some[i], o[number]) and torch.equal(lse_some[i], lse[number])


def test_the_bits_do_not_depend_on_the_number_of_multiprocessors() -> None:
    """sm_90 has 132, sm_80 108, and 86 has 84: other blocks take the items, in another order."""
    problem = DecodingProblem(3, 4, 1, 3000, 64, kv_heads=2, lengths=(3000, 7, 1030), dtype="f16")
    inputs = get_operation("decoding").make_inputs(problem)
    first, *others = (call(inputs, arch) for arch in ("sm_80", "sm_86", "sm_90"))
    for o, lse in others:
        assert torch.equal(o, first[0]) and torch.equal(lse, first[1])


def call(inputs: dict[str, torch.Tensor], arch: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = (inputs[name] for name in ("q", "k_cache", "v_cache", "seqused_k", "block_table"))
    return decode_attention(*tensors, stage=NAME, arch=arch, is_causal=inputs["q"].shape[2] > 1)


def test_a_short_sequence_may_have_more_splits_than_the_longest(run_stage: RunStage) -> None:
    """From 32,769 keys on splits are longer, so 32,768 keys have the most; the workspace holds them all."""
    problem = DecodingProblem(1, 1, 1, 32_769, 64, lengths=(32_768,))
    assert run_stage(NAME, problem).passed


def test_it_reads_the_keys_once(run_stage: RunStage) -> None:
    """More items than blocks, and parts that are merged: keys and values once, and the parts once."""
    problem = DecodingProblem(2, 8, 1, 2100, 64, kv_heads=2, lengths=(2100, 1100))
    alone = [replace(problem, batch=1, lengths=(length,)) for length in (2100, 1100)]
    rows = [run_stage(NAME, one).row for one in (problem, *alone)]
    for column in ("mma_instructions", "ldmatrix_instructions", "global_sectors_st"):
        assert rows[0][column] == rows[1][column] + rows[2][column]


def test_hardly_anything_is_spilled(spilled_bytes: Callable[..., list[int]]) -> None:
    """In f16 as in bf16: 520 bytes are stored and loaded at d = 256, and with tiles of 32 rows 300 at d = 128
    and 76 at d = 64.
    """
    spilled = [size for size in spilled_bytes(NAME) if size]
    assert len(spilled) <= 6 and sum(spilled) <= 2 * (520 + 300 + 76)
