"""Who has which rows, who computes what, and what is sent; all by counting."""

from __future__ import annotations

import pytest
import torch

from ladder.call.distributed import SCHEDULES, Part, Sizes, even_lengths, shard, shard_lengths, unshard
from ladder.call.distributed.ring import sources
from ladder.errors import InvalidProblem

WITH_PARTS = [name for name in SCHEDULES if name != "ulysses"]


def sizes_of(rows: int, ranks: int, schedule: str, is_causal: bool) -> Sizes:
    return Sizes(2, 8, 4, 32, shard_lengths(rows, ranks, schedule), 2, is_causal)


@pytest.mark.parametrize("schedule", ["ring", "zigzag"])
@pytest.mark.parametrize(("rows", "ranks"), [(33, 1), (33, 2), (35, 3), (8, 4), (70, 5)])
def test_shards_make_the_whole(schedule: str, rows: int, ranks: int) -> None:
    whole = torch.arange(3 * rows).view(1, 3, rows)
    shards = [shard(whole, rank, ranks, schedule) for rank in range(ranks)]
    assert tuple(one.shape[2] for one in shards) == shard_lengths(rows, ranks, schedule)
    assert torch.equal(unshard(shards, schedule), whole)
    assert sum(shard_lengths(rows, ranks, schedule)) == rows


def test_chunks_differ_by_one_at_most() -> None:
    assert even_lengths(11, 4) == (3, 3, 3, 2)
    assert shard(torch.arange(11), 0, 2, "zigzag", 0).tolist() == [0, 1, 2, 9, 10]
    with pytest.raises(InvalidProblem, match="3 rows cannot be cut into 4 chunks"):
        shard(torch.zeros(1, 1, 3, 8), 0, 2, "zigzag")


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("schedule", WITH_PARTS)
@pytest.mark.parametrize(("rows", "ranks"), [(33, 2), (35, 3), (8, 4), (70, 5)])
def test_each_visible_pair_is_computed_once(schedule: str, rows: int, ranks: int, is_causal: bool) -> None:
    sizes = sizes_of(rows, ranks, schedule, is_causal)
    places = [shard(torch.arange(rows), rank, ranks, schedule, 0) for rank in range(ranks)]
    times = torch.zeros(rows, rows, dtype=torch.int)
    for rank in range(ranks):
        for part in SCHEDULES[schedule].parts(sizes, rank):
            queries = places[rank][part.queries]
            keys = torch.cat([places[source][part.keys] for source in part.sources])
            seen = torch.ones(len(queries), len(keys), dtype=torch.int)
            seen = seen.tril() if part.is_causal else seen  # as the rungs mask
            assert int(seen.sum()) == part.scores(sizes, rank)
            times[queries[:, None], keys] += seen
    wanted = torch.ones(rows, rows, dtype=torch.int)
    assert torch.equal(times, wanted.tril() if is_causal else wanted)


def test_zigzag_is_balanced_and_the_ring_is_not() -> None:
    work = {
        schedule: [
            sum(part.scores(sizes, rank) for part in SCHEDULES[schedule].parts(sizes, rank))
            for rank in range(4)
        ]
        for schedule in ("ring", "zigzag")
        for sizes in [sizes_of(64, 4, schedule, True)]
    }
    assert work["ring"] == [136, 392, 648, 904]
    assert work["zigzag"] == [520] * 4
    # Each step after the first is half of what it would be without a mask.
    sizes = sizes_of(64, 4, "zigzag", True)
    for rank in range(4):
        assert [part.scores(sizes, rank) for part in SCHEDULES["zigzag"].parts(sizes, rank)] == [
            136,
            128,
            128,
            128,
        ]


def test_whose_keys_a_rank_holds() -> None:
    assert sources(1, 4) == [1, 0, 3, 2]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_bytes_are_those_of_the_docstrings(ranks: int) -> None:
    """For equal shards: the formulas as they stand in the modules."""
    batch, heads, kv_heads, d, e, n = 2, 16, 8, 32, 2, 10
    for rank in range(ranks):
        sizes = Sizes(batch, heads, kv_heads, d, (n,) * ranks, e, True)
        block = 2 * batch * kv_heads * n * d
        ring = ((ranks - 1) * block * e, block * (ranks * e + (ranks - 2) * 4))
        assert (
            SCHEDULES["ring"].bytes_sent(sizes, rank) == SCHEDULES["zigzag"].bytes_sent(sizes, rank) == ring
        )
        gathered = (ranks - 1) * block * e
        assert SCHEDULES["all_gather"].bytes_sent(sizes, rank) == (gathered, gathered + rank * block * e)
        ulysses = (ranks - 1) * batch * n * ((2 * heads + 2 * kv_heads) * d * e + 4 * heads) // ranks
        assert SCHEDULES["ulysses"].bytes_sent(sizes, rank) == (ulysses, ulysses)
        assert (ulysses < ring[0]) == (ranks > heads / kv_heads + 1)


def test_parts_are_slices_of_rows() -> None:
    sizes = sizes_of(22, 2, "zigzag", True)
    assert SCHEDULES["zigzag"].parts(sizes, 1) == [
        Part((1,), slice(None), slice(None), True),
        Part((0,), slice(None), slice(6), False),
    ]
