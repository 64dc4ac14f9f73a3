"""The problems that rungs are tried on: the default one, the shape matrix, the calibration problems."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ladder.operations.attention.problem import INPUTS, Problem
from ladder.operations.base import DTYPES, Huge
from ladder.operations.pairwise import pairwise, product

#: The default of ``ladder compare`` on the emulator: about a second of emulation per rung.
DEFAULT_PROBLEM = Problem(1, 2, 256, 256, 64)
#: The default on a GPU, large enough to fill one.
DEFAULT_GPU_PROBLEM = Problem(4, 16, 1024, 1024, 64)

#: The default problems of ``ladder check``: sizes that are multiples of tiles, and sizes that are not.
CHECK_PROBLEMS = (
    DEFAULT_PROBLEM,
    Problem(1, 2, 100, 77, 64, kv_heads=1, is_causal=True),
    Problem(1, 2, 250, 300, 64, kv_heads=1, window=(40, 9)),
    Problem(1, 1, 100, 200, 128, window=(40, 9), softcap=20.0),
    Problem(1, 3, 100, 200, 64, window=(40, 9), sinks=True),
    Problem(3, 2, 200, 150, 64, kv_heads=1, window=(-1, 0), q_lens=(200, 0, 65), kv_lens=(150, 7, 90)),
    Problem(1, 2, 200, 150, 192, kv_heads=1, is_causal=True),
    Problem(1, 2, 200, 150, 104, kv_heads=1, is_causal=True),
)
#: The problems of the figures in results/.
BENCH_PROBLEMS = (
    Problem(4, 16, 1024, 1024, 64, dtype="f32"),
    *(
        Problem(4, 16, 4096, 4096, head_dim, dtype="bf16", is_causal=is_causal)
        for head_dim in (64, 128)
        for is_causal in (False, True)
    ),
    Problem(4, 16, 1024, 1024, 64, dtype="f16"),
    Problem(4, 16, 1024, 1024, 128, dtype="f16"),
    Problem(4, 16, 4096, 4096, 128, dtype="f16"),
)

HEAD_DIMS = (32, 64, 128)

#: The axes of the shape matrix; boundary_problems tries more sizes.
AXES: dict[str, tuple[Any, ...]] = {
    "q_len": (70, 1, 17, 129),
    "kv_len": (80, 1, 33, 130),
    "head_dim": HEAD_DIMS,
    "dtype": DTYPES,
    "is_causal": (False, True),
    "batch_heads_kv": ((1, 2, 2), (2, 2, 1), (1, 3, 1)),
    "inputs": INPUTS,
    "scale": (None, 0.25, -0.125, 0.0),
}

#: N and M at, below and above multiples of tiles and blocks: 16 to 256 rows, 16 to 384 keys; then many rows
#: or keys with few of the other, so that ring buffers wrap around more than once.
_BOUNDARIES = (
    *((1, 16), (15, 257), (16, 63), (17, 128), (31, 129), (33, 48), (48, 97), (64, 64), (65, 1), (127, 31)),
    *((128, 32), (129, 65), (257, 17), (300, 15), (3, 385), (5, 1601), (1030, 3)),
)
_CAUSAL_BOUNDARIES = (
    *((1, 1), (16, 17), (33, 32), (63, 65), (64, 64), (65, 129), (96, 95), (129, 130), (260, 33), (33, 300)),
    *((300, 300), (5, 1601), (1030, 3)),
)
#: B, H and Hkv, which index arithmetic can mix up: several of each, and no two sizes alike.
_HEADS = ((4, 10, 2), (2, 5, 5), (5, 4, 1), (1, 12, 3))

#: Windows: of one key, on one side, on both, causal, and without a limit to the right.
_WINDOWS = ((0, 0), (70, 0), (5, 20), (-1, 0), (33, -1))
#: N and M: more keys than queries, as many, and fewer, so that rows before the first key see none.
_WINDOW_SIZES = ((70, 130), (200, 200), (400, 90), (129, 1))
#: N, M and windows at, below and above the ends of tiles; of many tiles; and that see no key at all.
_WINDOW_BOUNDARIES = (
    *((64, 64, (63, 0)), (65, 65, (64, 0)), (192, 192, (79, 0)), (193, 400, (80, 0)), (200, 500, (127, 1))),
    *((256, 256, (128, 0)), (300, 77, (10, 0)), (1, 300, (299, 0)), (1, 300, (0, 5)), (600, 600, (16, 16))),
    *((500, 20, (-1, 0)), (100, 900, (0, 64)), (30, 600, (250, -1)), (330, 330, (1000, 2000))),
)

#: Sequences' numbers of queries and keys: at and beside tiles' ends, none of either, one, and many.
_LENGTHS = (
    ((100, 17, 1), (100, 17, 1)),
    ((0, 192, 64), (130, 0, 65)),
    ((193, 64, 3, 0), (80, 300, 1, 7)),
    ((384,), (90,)),
    ((5,) * 9, (70, 3, 1, 64, 0, 80, 81, 2, 5)),
)

#: A multiple of the rows of a block of every rung.
_LARGEST_TILE = 768

#: At most one block per SM of an H200 (132) for every rung, so that the hardware's counters are exact.
CALIBRATION_PROBLEMS = tuple(
    Problem(1, heads, q_len, kv_len, head_dim, is_causal=is_causal)
    for heads, q_len, kv_len, is_causal in (
        (2, 256, 256, False),
        (4, 128, 512, False),
        (2, 256, 256, True),
        (3, 100, 77, False),
    )
    for head_dim in HEAD_DIMS
)


#: Of how many head dims a rung is tried.
_MOST_HEAD_DIMS = 6


def few(head_dims: Sequence[int]) -> Sequence[int]:
    """Of a long list of head dims some, equally far apart, with the first and the last one."""
    places = range(_MOST_HEAD_DIMS)
    if len(head_dims) <= len(places):
        return head_dims
    return [head_dims[place * (len(head_dims) - 1) // places[-1]] for place in places]


def pairwise_problems(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """A few dozen problems in which any two values of any two axes of the matrix occur together."""
    return [_problem(row) for row in pairwise(_axes(dtypes, head_dims))]


def strided_problems(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """Tensors whose heads lie side by side, of several batches, heads and groups."""
    return [
        Problem(b, h, n, m, d, kv_heads=kv, dtype=dtype, is_causal=causal, strided=True)
        for d in head_dims
        for dtype in dtypes
        for b, h, kv, n, m, causal in ((2, 6, 3, 70, 130, False), (1, 2, 1, 200, 90, True))
    ]


#: The features that few rungs take, each with the axes of its problems.
_VARIANTS: tuple[dict[str, tuple[Any, ...]], ...] = (
    {"window": _WINDOWS, "strided": (False, True)},
    {"softcap": (30.0, 0.5), "window": (None, (33, 9))},
    {"sinks": (True,), "window": (None, (33, 9))},
)


def variants(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """Problems with the features that few rungs take: of each, any two values of any two axes meet."""
    common = {
        "sizes": _WINDOW_SIZES,
        "inputs": ("normal", "large", "dominant", "rising"),
        "batch_heads_kv": ((1, 2, 1), (2, 1, 1)),
        "scale": (None, -0.125),
        "dtype": tuple(dtypes),
        "head_dim": tuple(head_dims),
    }
    rows = [row for axes in _VARIANTS for row in pairwise({**axes, **common})]
    causal = [
        Problem(2, 2, 100, 150, head_dims[-1], dtype=dtypes[-1], is_causal=True, **features)
        for features in ({"softcap": 10.0}, {"sinks": True})
    ]
    return [*map(_problem, rows), *causal, *jagged(dtypes, head_dims)]


def jagged(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """Sequences of different lengths, in which any two values of any two axes meet."""
    axes = {
        "lengths": _LENGTHS,
        "window": (None, (-1, 0), (33, 9)),
        "heads_kv": ((2, 1), (3, 3)),
        "inputs": ("normal", "large"),
        "dtype": tuple(dtypes),
        "head_dim": tuple(head_dims),
    }
    return [_sequences(row) for row in pairwise(axes)]


def _sequences(row: dict[str, Any]) -> Problem:
    others = dict(row)
    (q_lens, kv_lens), (heads, kv_heads) = others.pop("lengths"), others.pop("heads_kv")
    return of_lengths(q_lens, kv_lens, heads, kv_heads, **others)


def of_lengths(
    q_lens: tuple[int, ...], kv_lens: tuple[int, ...], heads: int, kv_heads: int, head_dim: int, **others: Any
) -> Problem:
    """The problem of these sequences."""
    sizes = (len(q_lens), heads, max(q_lens), max(kv_lens), head_dim, kv_heads)
    return Problem(*sizes, q_lens=q_lens, kv_lens=kv_lens, **others)


def window_boundaries(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """Windows around the ends of tiles, with ordinary inputs."""
    turns = itertools.cycle(itertools.product(head_dims, dtypes))
    return [
        Problem(1, 1, n, m, d, dtype=dtype, window=window)
        for (n, m, window), (d, dtype) in zip(_WINDOW_BOUNDARIES, turns, strict=False)
    ]


def boundary_problems(head_dim: int, dtypes: Sequence[str] = DTYPES) -> list[Problem]:
    """Sizes around the ends of tiles, with ordinary inputs; and several batches, heads and groups."""
    sizes = [(n, m, False) for n, m in _BOUNDARIES] + [(n, m, True) for n, m in _CAUSAL_BOUNDARIES]
    turns = itertools.cycle(dtypes)
    if head_dim % 128 == 64:
        next(turns)  # so that each size meets each dtype at some head dim
    return [
        *(Problem(1, 1, n, m, head_dim, dtype=next(turns), is_causal=causal) for n, m, causal in sizes),
        *(
            Problem(b, h, 17, 33, head_dim, kv_heads=kv, dtype=next(turns), is_causal=b % 2 == 0)
            for b, h, kv in _HEADS
        ),
        *(Problem(1, 1, 20, 300, head_dim, dtype=dtype, inputs="rising") for dtype in dtypes),
    ]


#: The features that few rungs take, alone.
_FEATURES: tuple[dict[str, Any], ...] = ({"window": (2100, 9)}, {"softcap": 20.0}, {"sinks": True})


def large_problems(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[Problem]:
    """Rows so long that the growth of errors shows, in each dtype and head dim, and once under a causal mask;
    then more keys and rows than 16 bits count, and many heads, of one tile and of several. With each feature
    long rows.
    """
    long_rows = [Problem(1, 2, 24, 2048, d, dtype=dtype) for d in head_dims for dtype in dtypes]
    d, dtype = head_dims[0], dtypes[-1]
    many_heads = [
        Problem(2, 33, 140, 7, d, kv_heads=11, dtype=dtype),
        Problem(1, 45, 5, 7, d, kv_heads=15, dtype=dtype),  # 63 is then past the last work item
    ]
    return [
        *long_rows,
        Problem(1, 1, 2100, 2100, d, dtype=dtype, is_causal=True),
        Problem(1, 1, 3, 2**16 + 45, d, dtype=dtype),
        Problem(1, 1, 2**16 + 45, 3, d, dtype=dtype),
        *many_heads,
        *(replace(long_rows[0], **feature) for feature in _FEATURES),
        of_lengths((24, 3), (2048, 5), 2, 2, d, dtype=dtype),
    ]


def beyond(count: int, dtype: str, head_dim: int) -> list[Problem]:
    """Batches, heads and sequences, of which few have more than a tile of rows, and heads with several."""
    few = Problem(1, 1, 5, 7, head_dim, dtype=dtype)
    plain = [
        replace(few, batch=count + 1),
        replace(few, heads=count + 1),
        replace(few, heads=count // 2 + 1, kv_heads=1, q_len=140),
    ]
    lengths = (200, *(5,) * count), (7, *(9,) * count)
    return [
        *plain,
        *(replace(one, **feature) for feature in _NEEDED for one in plain),
        of_lengths(*lengths, 1, 1, head_dim, dtype=dtype),
        of_lengths((140, 5), (7, 9), count + 1, count + 1, head_dim, dtype=dtype),
    ]


#: The factors by which a series of problems grows.
GROWTH = tuple(2**n for n in range(8))
#: Features of which a rung may need one.
_NEEDED: tuple[dict[str, Any], ...] = ({"window": (40, 9)}, {"softcap": 20.0}, {"sinks": True})


def growing(dtype: str, head_dim: int) -> Iterator[list[Problem]]:
    """More and more keys, queries, heads that share their keys, and batches; never a multiple of a tile. For
    rungs that need a feature, more and more heads with it, or sequences of given lengths. One head dim
    suffices there: these rungs differ from others in what the feature adds.
    """
    few = Problem(1, 1, 70, 140, head_dim, dtype=dtype)
    yield [replace(few, q_len=200, kv_len=64 * n - 3) for n in GROWTH]
    yield [replace(few, q_len=64 * n - 3, kv_len=33) for n in GROWTH]
    heads = [replace(few, heads=n, kv_heads=1) for n in GROWTH]
    batches = [replace(few, batch=n) for n in GROWTH]
    yield from (heads, batches)
    if head_dim == 64:
        yield from ([replace(one, **feature) for one in heads] for feature in _NEEDED)
        yield [replace(one, q_lens=(70,) * one.batch, kv_lens=(140,) * one.batch) for one in batches]


def beyond_32_bits(dtype: str, head_dim: int) -> list[Huge]:
    """More than 2**32 elements in q and o, of many heads (then also in k and v) or of many rows; and what the
    last block computes: the last 16 rows.
    """
    heads, q_len = 32_772, 16
    batch = 2**32 // (heads * q_len * head_dim) + 1
    of_heads = Problem(batch, heads, q_len, 40, head_dim, kv_heads=heads // 2, dtype=dtype)
    tiles = 2**32 // (head_dim * _LARGEST_TILE) + 1
    of_rows = Problem(1, 1, tiles * _LARGEST_TILE + q_len, 40, head_dim, dtype=dtype)
    return [
        Huge(
            of_heads,
            replace(of_heads, batch=3, heads=4, kv_heads=2),
            replace(of_heads, batch=1, heads=1, kv_heads=1),
        ),
        Huge(of_rows, replace(of_rows, q_len=2 * _LARGEST_TILE + q_len), replace(of_rows, q_len=q_len)),
    ]


def full_problems(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """All combinations of sizes with ordinary inputs, and all kinds of inputs at a few sizes."""
    axes = _axes(dtypes, head_dims)
    sizes = {**axes, "inputs": ("normal",), "scale": (None,)}
    values = {**axes, "q_len": (64, 100), "kv_len": (80,), "batch_heads_kv": ((1, 2, 1),)}
    rows = itertools.chain(product(sizes), product(values))
    return [*dict.fromkeys(_problem(row) for row in rows), *variants(dtypes, head_dims)]


def _axes(dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, tuple[Any, ...]]:
    return {**AXES, "dtype": tuple(dtypes), "head_dim": tuple(head_dims)}


def _problem(row: dict[str, Any]) -> Problem:
    sizes = dict(row)
    batch, heads, kv_heads = sizes.pop("batch_heads_kv")
    q_len, kv_len = sizes.pop("sizes", None) or (sizes.pop("q_len"), sizes.pop("kv_len"))
    return Problem(batch, heads, q_len, kv_len, kv_heads=kv_heads, **sizes)


def random_problems(
    seed: int, dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS, largest: int = 300
) -> Iterator[Problem]:
    """An endless stream of problems, determined by the seed: N and M up to ``largest``, more often small."""
    chance = random.Random(seed)
    while True:
        most = min(largest, 2 ** chance.randint(0, largest.bit_length()))
        kv_heads = chance.randint(1, 2)
        is_windowed = chance.random() < 0.5
        feature = chance.choice((None, None, "softcap", "sinks", "varlen"))
        if feature == "varlen":
            window = (chance.randint(-1, most), chance.randint(-1, most)) if is_windowed else None
            q_lens, kv_lens = (
                (chance.randint(1, most), *(chance.randint(0, most) for _ in range(sequences)))
                for sequences in [chance.randint(0, 4)] * 2
            )
            d, dtype = chance.choice(head_dims), chance.choice(dtypes)
            yield of_lengths(q_lens, kv_lens, 2 * kv_heads, kv_heads, d, dtype=dtype, window=window)
            continue
        yield Problem(
            batch=chance.randint(1, 2),
            heads=kv_heads * chance.randint(1, 3),
            kv_heads=kv_heads,
            q_len=chance.randint(1, most),
            kv_len=chance.randint(1, most),
            head_dim=chance.choice(head_dims),
            dtype=chance.choice(dtypes),
            is_causal=chance.random() < 0.5 and not is_windowed,
            window=(chance.randint(-1, most), chance.randint(-1, most)) if is_windowed else None,
            softcap=chance.choice((0.1, 5.0, 50.0)) if feature == "softcap" else None,
            sinks=feature == "sinks",
            inputs=chance.choice(INPUTS),
            scale=chance.choice((None, None, 1.0, -1.0, 0.0, 1e-3, 4.0, round(chance.uniform(-2, 2), 3))),
        )
