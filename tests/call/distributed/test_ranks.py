"""Three ranks in processes of their own, with gloo and emulated kernels, against float64 and one process."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import three_ranks
import torch
from rungs import named

import ladder.call.distributed as several
from ladder.call.distributed.agreement import sequence_words
from ladder.call.distributed.bounds import gradients_in_parts, reference_in_parts

RANKS, PROBLEM = three_ranks.RANKS, three_ranks.PROBLEM


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the ranks have left what they found."""
    path = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, three_ranks.__file__, str(path)], capture_output=True, text=True, timeout=300
    )
    assert (path / f"{RANKS - 1}.pt").is_file(), done.stderr
    return path


@pytest.fixture(scope="module")
def found(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("schedule", list(several.SCHEDULES))
def test_results_are_within_their_bounds(found: list[dict[str, Any]], schedule: str, is_causal: bool) -> None:
    shards = [one["computed"][schedule, is_causal] for one in found]
    names = ("o", "lse", "dq", "dk", "dv")
    whole = {name: several.unshard([one[name] for one in shards], schedule) for name in names}
    x = three_ranks.inputs()
    mask = {"is_causal": is_causal, "scale": PROBLEM.softmax_scale}
    forward = reference_in_parts(x["q"], x["k"], x["v"], schedule, RANKS, **mask)
    gradients = gradients_in_parts(
        x["q"], x["k"], x["v"], whole["o"], whole["lse"], x["d_o"], x["d_lse"], schedule, RANKS, **mask
    )
    assert forward.wrong(whole) == {} and gradients.wrong(whole) == {}
    # The bounds are so narrow that a single rounding to bf16 exceeds them.
    rounded = {name: tensor.bfloat16() for name, tensor in whole.items()}
    assert {*forward.wrong(rounded), *gradients.wrong(rounded)} >= {"o", "lse", "dq"}


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("schedule", list(several.SCHEDULES))
def test_bytes_sent_are_those_of_the_formula(
    found: list[dict[str, Any]], schedule: str, is_causal: bool
) -> None:
    lengths = several.shard_lengths(PROBLEM.q_len, RANKS, schedule)
    sizes = several.Sizes(1, PROBLEM.heads, PROBLEM.num_kv_heads, PROBLEM.head_dim, lengths, 2, is_causal)
    for rank, one in enumerate(found):
        assert one["computed"][schedule, is_causal]["sent"] == several.SCHEDULES[schedule].bytes_sent(
            sizes, rank
        )


@pytest.mark.parametrize(
    ("schedule", "is_causal"), [*((name, True) for name in several.SCHEDULES), ("zigzag", False)]
)
def test_packed_sequences_do_not_see_each_other(
    found: list[dict[str, Any]], schedule: str, is_causal: bool
) -> None:
    """Each sequence has the results that it has alone, and the ranks send what one sequence takes."""
    problem, offsets = three_ranks.PACKED, three_ranks.OFFSETS
    shards = [one["packed"][schedule, is_causal] for one in found]
    names = ("o", "lse", "dq", "dk", "dv")
    whole = {name: several.unshard([one[name] for one in shards], schedule) for name in names}
    x = three_ranks.inputs(problem)
    mask = {"is_causal": is_causal, "scale": problem.softmax_scale}
    for begin, end in pairwise(offsets):
        if begin == end:
            continue
        one, own = ({name: t[:, :, begin:end] for name, t in of.items()} for of in (x, whole))
        of_parts = (schedule, RANKS) if end - begin >= 2 * RANKS else ("ring", 1)
        forward = reference_in_parts(one["q"], one["k"], one["v"], *of_parts, **mask)
        gradients = gradients_in_parts(
            *(one[name] for name in ("q", "k", "v")),
            own["o"],
            own["lse"],
            one["d_o"],
            one["d_lse"],
            *of_parts,
            **mask,
        )
        assert forward.wrong(own) == {} and gradients.wrong(own) == {}
    lengths = several.shard_lengths(problem.q_len, RANKS, schedule)
    sizes = several.Sizes(1, problem.heads, problem.num_kv_heads, problem.head_dim, lengths, 2, is_causal)
    for rank, one in enumerate(shards):
        assert one["sent"] == several.SCHEDULES[schedule].bytes_sent(sizes, rank)


def test_the_order_of_merging_is_fixed(found: list[dict[str, Any]]) -> None:
    assert all(one["same bits again"] for one in found)


def test_an_output_may_have_no_gradient(found: list[dict[str, Any]]) -> None:
    """Of lse alone, and of its rows on ranks 1 and 2: dk is that of all other rows' lse."""
    x = three_ranks.inputs()
    rows = several.shard_lengths(PROBLEM.q_len, RANKS)[0]
    k = x["k"].double().requires_grad_()
    s = x["q"].double() @ k.repeat_interleave(2, 1).mT * PROBLEM.softmax_scale
    lse = s.masked_fill(torch.ones(s.shape[2:]).triu(1) > 0, -torch.inf).logsumexp(-1)
    (expected,) = torch.autograd.grad(lse[:, :, rows:], k, x["d_lse"][:, :, rows:].double())
    for schedule in ("ring", "ulysses"):
        dk = several.unshard([one["of lse alone"][schedule] for one in found])
        assert (dk - expected).abs().max() < 4e-3 * expected.abs().max()


def test_a_group_of_two(found: list[dict[str, Any]]) -> None:
    """Each rank has one part of the other's keys, so all sums have two terms and none is fp32."""
    x = three_ranks.inputs()
    for schedule in ("all_gather", "ring", "zigzag"):
        shards = [one["of two"][schedule] for one in found[:2]]
        whole = {name: several.unshard([one[name] for one in shards], schedule) for name in shards[0]}
        mask = {"is_causal": True, "scale": PROBLEM.softmax_scale}
        forward = reference_in_parts(x["q"], x["k"], x["v"], schedule, 2, **mask)
        gradients = gradients_in_parts(
            x["q"], x["k"], x["v"], whole["o"], whole["lse"], x["d_o"], x["d_lse"], schedule, 2, **mask
        )
        assert forward.wrong(whole) == {} and gradients.wrong(whole) == {}


def test_a_group_of_one(found: list[dict[str, Any]]) -> None:
    assert all(one["alone"] for one in found)


@pytest.mark.parametrize(
    ("what", "message"),
    {
        "heads": "the ranks disagree about the number of query heads: 6 on ranks 0, 1; 12 on rank 2",
        "dtype": "the ranks disagree about the dtype: float16 on ranks 0, 1; bfloat16 on rank 2",
        "head_dim": "the ranks disagree about the head dimension: 64 on ranks 0, 1; 32 on rank 2",
        "mask": "the ranks disagree about is_causal: False on ranks 0, 1; True on rank 2",
        "schedule": "the ranks disagree about the schedule: ring on ranks 0, 1; ulysses on rank 2",
        "gradients": "the ranks disagree about whether gradients are wanted: "
        "False on ranks 0, 1; True on rank 2",
        "unknown schedule": "rank 2: there is no schedule 'spiral'; "
        "schedules are all_gather, ring, zigzag, ulysses",
        "many bytes": f"rank 2: there is no schedule '{234 * chr(0x1F300)}",
        "schedules": "rank 2: there is no schedule ['ring']; schedules are all_gather, ring, zigzag, ulysses",
        "no dtype of the rung": f"rank 2: {named('v3')} takes f16, bf16, not f32",
        "rows of zigzag": "the ranks have 4, 4, 5 rows; of 13 rows, zigzag gives them 5, 4, 4",
        "too few for zigzag": '"zigzag" cuts the sequence into 6 chunks, and it has only 3 rows',
        "no rows": "rank 2 has no rows: there are 8 over 3 ranks",
        "no rows ahead": "rank 2 has no rows: there are 8 over 3 ranks",
        "heads ahead": "the ranks disagree about the number of query heads: 6 on ranks 0, 1; 12 on rank 2",
        "no rows, no dtype": f"rank 2: {named('v3')} takes f16, bf16, not f32",
        "no rows, and no offsets": "rank 2: cu_seqlens must be a one-dimensional torch.Tensor of int32",
        "other sequences": "the ranks disagree about cu_seqlens: "
        f"{sequence_words((0, 7, 12))} on ranks 0, 1; {sequence_words((0, 5, 12))} on rank 2",
        "sequences on one rank": "the ranks disagree about cu_seqlens: "
        f"none on ranks 0, 1; {sequence_words((0, 12))} on rank 2",
        "other tokens": "cu_seqlens ends with 13, and the ranks hold 12 rows together",
        "two head dims": "rank 2: value has d = 128 and key 192; schedules send K and V of one size",
        "decreasing": "rank 2: cu_seqlens must have an entry per sequence and one more, begin with 0 "
        "and never decrease",
        "no offsets": "rank 2: cu_seqlens must be a one-dimensional torch.Tensor of int32",
        "no longer there": "",
    }.items(),
)
def test_all_ranks_hear_the_same_of_a_disagreement(
    found: list[dict[str, Any]], what: str, message: str
) -> None:
    """And the next call works."""
    assert [one["disagreements"][what] for one in found] == [message and f"InvalidProblem: {message}"] * RANKS


def test_an_error_of_one_rank_ends_the_others(found: list[dict[str, Any]]) -> None:
    """Also one that is none of ours, which that rank raises itself. And the next call works."""
    for what, error in {
        "no memory": "OutOfMemoryError: no memory",
        "no data": "NotImplementedError: Cannot copy out of meta tensor; no data!",
    }.items():
        *others, own = (one["disagreements"][what] for one in found)
        assert own == error and others == [f"InvalidProblem: rank {RANKS - 1}: {error}"] * (RANKS - 1)


def test_an_earlier_error_of_one_rank_ends_all(found: list[dict[str, Any]]) -> None:
    for one in found:
        message = "CommunicationError: the ranks have sent 0, 0, 1 blocks: an error ended an earlier call"
        assert one["disagreements"]["blocks"].startswith(message)


def test_a_rank_that_does_not_answer(found: list[dict[str, Any]]) -> None:
    for one in found[:-1]:
        message, seconds = one["unanswered"]
        assert message.startswith("CommunicationError: rank ") and "lost the other ranks" in message
        assert seconds < 30


def test_a_rank_that_ends(folder: Path) -> None:
    for rank in range(RANKS - 1):
        assert f"rank {rank} lost the other ranks" in (folder / f"lost-{rank}.txt").read_text()
