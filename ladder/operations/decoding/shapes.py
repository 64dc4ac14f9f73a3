"""The problems that the decoding rungs are tried on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ladder.operations.attention.problem import INPUTS
from ladder.operations.attention.shapes import GROWTH
from ladder.operations.base import Huge
from ladder.operations.decoding.problem import MOST_QUERIES, DecodingProblem
from ladder.operations.pairwise import pairwise

DEFAULT_PROBLEM = DecodingProblem(2, 8, 1, 1000, 64, kv_heads=2)
#: A layer of Llama 3 8B with 32 sequences.
DEFAULT_GPU_PROBLEM = DecodingProblem(32, 32, 1, 4096, 128, kv_heads=8)

#: The default problems of ``ladder check``: several splits, one, few keys; several queries; pages; e4m3.
CHECK_PROBLEMS = (
    DecodingProblem(2, 4, 1, 1100, 64, kv_heads=2, lengths=(1100, 70)),
    DecodingProblem(2, 4, 3, 200, 64, kv_heads=1, lengths=(190, 0), is_causal=True, num_splits=1),
    DecodingProblem(2, 4, 2, 300, 128, kv_heads=2, lengths=(300, 33), num_splits=3),
    DecodingProblem(2, 4, 2, 300, 64, kv_heads=2, lengths=(300, 33), page_size=16, is_causal=True),
    DecodingProblem(
        2, 4, 2, 1300, 64, 2, lengths=(1300, 33), is_causal=True, window=1100, softcap=20.0, sinks=True
    ),
    DecodingProblem(2, 8, 1, 1100, 64, kv_heads=2, lengths=(1100, 70), e4m3=True),
    DecodingProblem(2, 4, 3, 300, 128, 1, lengths=(300, 33), is_causal=True, page_size=16, e4m3=True),
)

#: One sequence, many, lengths that differ, pages; GQA groups of 4 and 8, and no group.
BENCH_PROBLEMS = (
    DEFAULT_GPU_PROBLEM,
    DecodingProblem(1, 32, 1, 131072, 128, kv_heads=8),
    DecodingProblem(8, 32, 1, 8192, 128, kv_heads=8),
    DecodingProblem(32, 32, 1, 32768, 128, kv_heads=8, lengths=(32768, *(512,) * 31)),
    DecodingProblem(8, 64, 1, 8192, 128, kv_heads=8),
    DecodingProblem(8, 32, 4, 8192, 128, kv_heads=8, is_causal=True),
    DecodingProblem(8, 32, 1, 8192, 64),
    replace(DEFAULT_GPU_PROBLEM, page_size=64),
    replace(DEFAULT_GPU_PROBLEM, e4m3=True),
    replace(DEFAULT_GPU_PROBLEM, page_size=64, e4m3=True),
)

#: At most one block per SM of an H200 (132) for every rung, so that the hardware's counters are exact.
CALIBRATION_PROBLEMS = tuple(
    problem
    for d in (64, 128)
    for problem in (
        DecodingProblem(1, 8, 1, 1000, d, kv_heads=2, num_splits=8),
        DecodingProblem(4, 8, 1, 300, d, kv_heads=2, num_splits=1),
        DecodingProblem(2, 8, 3, 500, d, kv_heads=2, num_splits=3, is_causal=True),
        DecodingProblem(1, 8, 1, 1000, d, kv_heads=2),
        DecodingProblem(2, 8, 2, 700, d, kv_heads=2, page_size=16, is_causal=True, lengths=(700, 130)),
        DecodingProblem(1, 8, 1, 1000, d, kv_heads=2, e4m3=True),
        DecodingProblem(2, 8, 2, 700, d, 2, page_size=16, is_causal=True, lengths=(700, 130), e4m3=True),
    )
)

#: Groups of query heads: none, of 2 to 16, and of more rows with several queries than a tile has.
_HEADS = ((2, 2), (8, 2), (6, 3), (16, 1), (12, 1))
#: M, and which part of it the sequences have: all, or different lengths, some of none.
_SIZES = (300, 1, 17, 64, 130)
_USED = ("all", "ragged")


def _lengths(kv_len: int, used: str) -> dict[str, Any]:
    """One sequence that fills its cache, or four of different lengths."""
    if used == "all":
        return {"batch": 1, "kv_len": kv_len}
    return {"batch": 4, "kv_len": kv_len, "lengths": (kv_len // 2, kv_len, 0, min(kv_len, 19))}


def _problem(row: dict[str, Any]) -> DecodingProblem:
    others = dict(row)
    heads, kv_heads = others.pop("heads_kv")
    sizes = _lengths(others.pop("kv_len"), others.pop("used"))
    return DecodingProblem(heads=heads, kv_heads=kv_heads, **sizes, **others)


def matrix(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
    """Problems in which any two values of any two axes occur together, for each feature."""
    common: dict[str, tuple[Any, ...]] = {
        "q_len": (1, 2, 5, MOST_QUERIES),
        "kv_len": _SIZES,
        "used": _USED,
        "heads_kv": _HEADS,
        "head_dim": tuple(head_dims),
        "dtype": tuple(dtypes),
        "is_causal": (False, True),
        "inputs": INPUTS,
        "scale": (None, 0.25, -0.125, 0.0),
    }
    features: tuple[dict[str, tuple[Any, ...]], ...] = (
        {},
        {"num_splits": (1, 2, 3, 9), "strided": (False, True)},
        {"page_size": (16, 48, 64, 128, 256), "strided": (False, True)},
        {"softcap": (None, 1.0, 30.0), "sinks": (False, True), "page_size": (0, 16)},
        {
            "window": (0, 5, 16, 70, 400),
            "softcap": (None, 30.0),
            "sinks": (False, True),
            "page_size": (0, 64),
            "is_causal": (True,),
        },
        {"e4m3": (True,), "page_size": (0, 16, 48, 64), "strided": (False, True)},
    )
    return [_problem(row) for feature in features for row in pairwise({**common, **feature})]


#: Lengths at, below and above multiples of tiles and of the steps of blocks, as the sequences of one batch.
_EDGES = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257)


def length_boundaries(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
    """The edges as lengths: with one query and several, with the splits that a rung chooses and others."""
    return [
        DecodingProblem(
            len(_EDGES),
            2,
            q_len,
            max(_EDGES),
            d,
            kv_heads=1,
            lengths=_EDGES,
            num_splits=splits,
            is_causal=q_len > 1,
            dtype=dtypes[i % len(dtypes)],
            e4m3=e4m3,
        )
        for d in head_dims
        for e4m3 in (False, True)
        for i, (q_len, splits) in enumerate(((1, 0), (3, 0), (1, 1), (2, 3), (1, 20)))
        if not (e4m3 and splits)
    ]


def head_boundaries(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
    """Groups whose rows with several queries are at, below and above multiples of 16 and 32; and several
    sequences of several splits, whose groups take several tiles.
    """
    turns = itertools.cycle(dtypes)
    splits = DecodingProblem(
        3, 10, 8, 2070, head_dims[0], kv_heads=2, dtype=dtypes[0], lengths=(1100, 1030, 2070)
    )
    found = [
        DecodingProblem(
            3, group * kv_heads, q_len, 150, d, kv_heads=kv_heads, dtype=next(turns), is_causal=q_len % 2 == 0
        )
        for d in head_dims
        for group, kv_heads, q_len in ((15, 2, 1), (2, 3, 8), (17, 1, 1), (31, 1, 1), (4, 2, 8), (5, 2, 7))
    ]
    return [*found, splits, *(replace(one, e4m3=True) for one in (*found, splits))]


def page_boundaries(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
    """The edges as lengths, in pages; many pages per sequence; and more tiles per warp than it has lanes,
    each of which may hold the page of one.
    """
    turns = itertools.cycle(dtypes)
    edges = DecodingProblem(len(_EDGES), 4, 1, max(_EDGES), head_dims[0], kv_heads=2, lengths=_EDGES)
    many = DecodingProblem(2, 2, 2, 1300, head_dims[0], lengths=(1300, 1101), is_causal=True)
    return [
        *(replace(edges, page_size=size, dtype=next(turns)) for size in (16, 32, 64, 128, 256)),
        *(replace(many, page_size=size, dtype=next(turns)) for size in (16, 80)),
        *(replace(edges, page_size=size, dtype=next(turns), e4m3=True) for size in (16, 32, 80)),
        *(replace(many, page_size=size, dtype=next(turns), e4m3=True) for size in (16, 80)),
        DecodingProblem(1, 2, 1, 2200, head_dims[0], kv_heads=1, dtype=dtypes[0], page_size=16, num_splits=1),
    ]


def window_boundaries(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
    """The edges as lengths; windows that leave whole tiles and splits, or not, some with sinks; no keys."""
    turns = itertools.cycle(dtypes)
    edges = DecodingProblem(len(_EDGES), 2, 3, max(_EDGES), head_dims[0], 1, lengths=_EDGES, is_causal=True)
    many = DecodingProblem(1, 2, 2, 1300, head_dims[0], is_causal=True, page_size=16)
    return [
        *(replace(edges, window=window, sinks=window > 20, dtype=next(turns)) for window in (0, 13, 31, 100)),
        *(
            replace(many, window=window, sinks=window > 1000, dtype=next(turns))
            for window in (14, 255, 256, 1008, 1022, 1040)
        ),
        replace(edges, batch=2, lengths=(0, 0), window=0, softcap=5.0, sinks=True, dtype=next(turns)),
    ]


def large_problems(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[DecodingProblem]:
    """More keys than 16 bits count, in pages twice as many: then a rung whose splits have a fixed size makes
    them so large that a warp has more tiles than lanes.
    """
    dtype, d = dtypes[-1], head_dims[0]
    return [
        DecodingProblem(1, 4, 1, 2**16 + 45, d, kv_heads=2, dtype=dtype),
        DecodingProblem(1, 2, 1, 2**17 + 45, d, kv_heads=1, dtype=dtype, page_size=256),
        *(
            DecodingProblem(1, 4, 2, 2048, d, kv_heads=1, dtype=dtype, e4m3=e4m3)
            for d in head_dims
            for dtype in dtypes
            for e4m3 in (False, True)
        ),
        DecodingProblem(1, 2, 1, 2**16 + 45, d, kv_heads=1, dtype=dtype, page_size=16, e4m3=True),
    ]


def beyond(count: int, dtype: str, head_dim: int) -> list[DecodingProblem]:
    """Sequences of all lengths up to 70 keys, and heads with keys of their own."""
    sequences = DecodingProblem(
        count + 1, 2, 1, 70, head_dim, lengths=tuple(b % 71 for b in range(count + 1)), dtype=dtype
    )
    heads = DecodingProblem(2, count + 1, 1, 20, head_dim, dtype=dtype)
    features: tuple[dict[str, Any], ...] = ({}, {"page_size": 16}, {"e4m3": True}, {"sinks": True})
    return [replace(one, **feature) for feature in features for one in (sequences, heads)]


def growing(dtype: str, head_dim: int) -> Iterator[list[DecodingProblem]]:
    """More and more keys, sequences, and heads that share their keys."""
    few = DecodingProblem(1, 2, 1, 140, head_dim, dtype=dtype)
    for one in (few, replace(few, page_size=16), replace(few, e4m3=True)):
        yield [replace(one, kv_len=64 * n - 3) for n in GROWTH]
        yield [replace(one, batch=n) for n in GROWTH]
        yield [replace(one, heads=n, kv_heads=1) for n in GROWTH]


def beyond_32_bits(dtype: str, head_dim: int) -> list[Huge]:
    """More than 2**32 elements in the caches of many sequences, dense and in pages. The last blocks compute
    the last sequence, whose keys are few. For persistent rungs, which alone take a softcap or e4m3, the other
    sequences have no keys, and all blocks run.
    """
    heads, kv_len = 64, 2**20
    short = DecodingProblem(1, heads, 1, 40, head_dim, kv_heads=heads, dtype=dtype, lengths=(40,))
    batch = 2**32 // (heads * kv_len * head_dim) + 2
    dense = replace(short, num_splits=1, lengths=None)  # the last cache is the last sequence's
    paged = replace(short, page_size=64)
    alone = replace(short, heads=2, kv_heads=2, kv_len=2**14)
    empty = 2**32 // (2 * 2**14 * head_dim) + 1
    return [
        Huge(
            replace(dense, batch=2**32 // (heads * 40 * head_dim) + 2),
            replace(dense, batch=3),
            dense,
            heads,
        ),
        Huge(
            replace(paged, batch=batch, kv_len=kv_len, lengths=(*(kv_len,) * (batch - 1), 40)),
            # So many splits that the last blocks of a persistent rung do not compute the last sequence alone.
            replace(paged, batch=2, kv_len=20_000, lengths=(20_000, 40)),
            paged,
            heads,
        ),
        *(
            Huge(_after_empty(one, empty), _after_empty(one, 2), one, blocks=2**20)
            for one in (replace(alone, softcap=20.0), replace(alone, e4m3=True))
        ),
    ]


def _after_empty(problem: DecodingProblem, count: int) -> DecodingProblem:
    """The problem's sequence after so many without keys."""
    lengths = (*(0,) * count, *problem.all_lengths)
    return replace(problem, batch=len(lengths), lengths=lengths)


def _has_pages(feature: str | None, chance: random.Random) -> bool:
    return feature == "pages" or (feature == "e4m3" and chance.random() < 0.5)


def random_problems(
    seed: int, dtypes: Sequence[str], head_dims: Sequence[int], largest: int
) -> Iterator[DecodingProblem]:
    """An endless stream of problems, determined by the seed: M up to ``largest``, more often small."""
    chance = random.Random(seed)
    while True:
        most = min(largest, 2 ** chance.randint(0, largest.bit_length()))
        kv_heads, batch = chance.randint(1, 2), chance.randint(1, 4)
        feature = chance.choice((None, "pages", "splits", "variants", "e4m3"))
        is_causal = chance.random() < 0.5
        yield DecodingProblem(
            batch,
            kv_heads * chance.choice((1, 2, 4, 5, 8, 16)),
            chance.choice((1, 1, 2, 3, MOST_QUERIES)),
            most,
            chance.choice(head_dims),
            kv_heads=kv_heads,
            dtype=chance.choice(dtypes),
            is_causal=is_causal,
            scale=chance.choice((None, None, 1.0, -1.0, 0.0, round(chance.uniform(-2, 2), 3))),
            inputs=chance.choice(INPUTS),
            strided=chance.random() < 0.3,
            lengths=tuple(chance.randint(0, most) for _ in range(batch)) if chance.random() < 0.7 else None,
            page_size=16 * chance.choice((1, 2, 4, 5, 16)) if _has_pages(feature, chance) else 0,
            num_splits=chance.randint(1, 12) if feature == "splits" else 0,
            window=chance.randint(0, most) if feature == "variants" and is_causal else None,
            softcap=chance.choice((None, 5.0, 50.0)) if feature == "variants" else None,
            sinks=feature == "variants" and chance.random() < 0.5,
            e4m3=feature == "e4m3",
        )
