"""The order of work items: every item once, longest first under a causal mask, head by head under others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, product
from pathlib import Path

import pytest
from nightly import whole_rungs
from rungs import named

from ladder.cli import main
from ladder.stages import discover, include_directory

PROGRAM, PROGRAM_OF_GRADIENTS = (Path(__file__).with_name(name) for name in ("items.cu", "key_items.cu"))
LARGE_GROUPS, SMALL_GROUPS, GRADIENTS = (
    [pytest.param(rung, marks=[] if rung in whole_rungs() else [pytest.mark.nightly]) for rung in rungs]
    for rungs in (
        (named("v12"), named("v12b")),
        (named("v12c"), named("x2"), named("x3"), named("x4")),
        (named("b5f"), named("b5g")),
    )
)
ORDERED = [*LARGE_GROUPS, *SMALL_GROUPS]
#: A mask of the rungs that take windows, beside False and True for is_causal.
SLIDING = 2
ROWS = 192  # of a tile of queries at d = 128
MEGABYTE = 1 << 20

Items = list[tuple[int, int, int]]


@pytest.fixture
def items(capfd: pytest.CaptureFixture[str]) -> Callable[..., Items]:
    """``items(rung, *sizes, is_causal=..., blocks=...)``: head, first row and number of keys of each item."""

    def read(rung: str, *sizes: int, is_causal: int, blocks: int) -> Items:
        return listed(PROGRAM, rung, [*sizes, int(is_causal), blocks], capfd)

    return read


def listed(program: Path, rung: str, arguments: Sequence[int], capfd: pytest.CaptureFixture[str]) -> Items:
    """The lines of three numbers that the program prints about the rung."""
    flags = f"--nvcc-flags=-I{include_directory()} -diag-suppress 177"
    # Without head dimensions none of the rung's own kernels is compiled.
    options = [f'-DKERNEL="{discover()[rung].kernel}"', "-DLADDER_HEAD_DIMS=0", flags, "--arch", "sm_90a"]
    assert main(["emulate", str(program), *options, "--", *map(str, arguments)]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()]
    return [(int(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3 and row[0].isdigit()]


@pytest.mark.parametrize("rung", ORDERED)
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("q_len", [1, 192, 400])
def test_every_item_has_one_number(
    items: Callable[..., Items], rung: str, q_len: int, is_causal: bool
) -> None:
    """Of 35 heads, with 4 or 16 together the last group has 3."""
    found = items(rung, 5, 7, q_len, 300, is_causal=is_causal, blocks=8)
    starts = range(0, q_len, ROWS)
    first = -(-q_len // 64) * 64 - len(starts) * ROWS if rung >= "v12c" else 0
    assert sorted(found) == [
        (head, first + start, min(300, first + start + ROWS) if is_causal else 300)
        for head, start in product(range(35), starts)
    ]


@pytest.mark.parametrize("rung", ORDERED)
def test_without_a_mask_heads_follow_each_other(items: Callable[..., Items], rung: str) -> None:
    heads = [head for head, _, _ in items(rung, 1, 6, 1000, 1000, is_causal=False, blocks=132)]
    assert heads == sorted(heads)


def test_with_a_sliding_window_heads_follow_each_other(items: Callable[..., Items]) -> None:
    """Its items see as many keys: blocks that work on one head read the same keys."""
    found = items(named("x2"), 1, 6, 1000, 1000, is_causal=SLIDING, blocks=132)
    heads = [head for head, _, _ in found]
    assert heads == sorted(heads)
    assert max(keys for _, _, keys in found) == 192 + 100


@pytest.mark.parametrize("rung", LARGE_GROUPS)
@pytest.mark.parametrize(("kv_len", "blocks", "together"), [(1000, 8, 4), (1000, 1, 1), (131_072, 132, 2)])
def test_under_a_causal_mask_the_longest_go_first(
    items: Callable[..., Items], rung: str, kv_len: int, blocks: int, together: int
) -> None:
    """In groups of heads; half as many as blocks, and no more than 128 MB of K and V."""
    assert together in (max(blocks // 2, 1), 128 * MEGABYTE // (2 * 2 * 128 * kv_len))
    require_groups(items(rung, 1, 10, 1000, kv_len, is_causal=True, blocks=blocks), 10, together)


@pytest.mark.parametrize("rung", SMALL_GROUPS)
@pytest.mark.parametrize(("kv_len", "together"), [(1000, 16), (16_384, 4), (65_536, 1)])
def test_with_a_counter_groups_are_small(
    items: Callable[..., Items], rung: str, kv_len: int, together: int
) -> None:
    """At most 16 heads, and no more than 32 MB of K and V."""
    assert together in (16, 32 * MEGABYTE // (2 * 2 * 128 * kv_len))
    require_groups(items(rung, 2, 9, 1000, kv_len, is_causal=True, blocks=132), 18, together)


@pytest.mark.parametrize("rung", GRADIENTS)
@pytest.mark.parametrize(("batch", "heads", "together"), [(3, 4, 4), (1, 6, 2), (5, 3, 1)])
def test_key_tiles_of_up_to_four_heads_go_together(
    capfd: pytest.CaptureFixture[str], rung: str, batch: int, heads: int, together: int
) -> None:
    """Every key tile once, and in each group the first ones first, which see the most queries."""
    found = listed(PROGRAM_OF_GRADIENTS, rung, [batch, heads, 300, 300, 1], capfd)
    starts = range(0, batch * heads, together)
    # Of four tiles of 80 queries, those before the tile of the first key are not seen.
    steps = {0: 4, 128: 3, 256: 1}
    assert found == [
        (first + head, key, steps[key]) for first, key, head in product(starts, steps, range(together))
    ]


def require_groups(found: Items, heads: int, together: int) -> None:
    """Heads in groups of ``together``, and in each group the longest items first."""
    groups = [[*group] for _, group in groupby(found, lambda item: item[0] // together)]
    assert len(groups) == -(-heads // together)
    for group in groups:
        rows = [row for _, row, _ in group]
        assert rows == sorted(rows, reverse=True)
        assert [keys for _, _, keys in group] == sorted((keys for _, _, keys in group), reverse=True)
