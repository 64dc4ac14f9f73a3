"""The problems that the HSTU rungs are tried on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ladder.operations.attention.shapes import GROWTH
from ladder.operations.base import Huge
from ladder.operations.hstu.problem import HstuProblem

DEFAULT_PROBLEM = HstuProblem(2, 64, (200, 17, 128))
DEFAULT_GPU_PROBLEM = HstuProblem(16, 64, (2048,) * 4)

#: Sequences shorter and longer than a tile, an empty one, one with more keys than queries; one of each mask.
_SIZES: tuple[dict[str, object], ...] = (
    {"q_lens": (0, 1, 17, 100), "kv_lens": (0, 1, 17, 130)},
    {"q_lens": (50, 70), "contexts": (3, 20), "targets": (5, 30), "target_group_size": 4},
    {"q_lens": (90, 33), "kv_lens": (90, 60), "window": (20, 5)},
    {"q_lens": (90, 33), "kv_lens": (90, 60), "intervals": True},
    {"q_lens": (64, 33), "kv_lens": (90, 60), "window": (30, 0), "alpha": -0.3},
    {"q_lens": (70, 17), "kv_lens": (70, 60), "window": (0, 0)},
    {"q_lens": (40, 70), "kv_lens": (200, 70), "window": (-1, -1)},
    {"q_lens": (150, 129), "kv_lens": (200, 129), "targets": (140, 1), "target_group_size": 16},
    {"q_lens": (30,), "kv_lens": (200,), "contexts": (180,), "targets": (15,), "target_group_size": 3},
    {"q_lens": (16, 3), "kv_lens": (300, 77)},
    # At d = 32 no query sees any of the first 64 of 128 keys that h4's warps split, but some of the others.
    {"q_lens": (1,) * 6, "kv_lens": tuple(range(295, 301)), "intervals": True},
)
_PAGED: tuple[dict[str, object], ...] = (
    {"q_lens": (0, 4, 17, 100), "kv_lens": (0, 8, 17, 230), "targets": (0, 2, 16, 60)},
    {"q_lens": (90, 1), "kv_lens": (300, 65), "targets": (90, 0)},
)
#: In the first one's last sequence, a warp's last row alone sees a page's first key; in the other one, it
#: alone does not see a tile before its group.
_PAGED_EDGES: tuple[dict[str, object], ...] = (
    {
        "q_lens": (3, 16, 33, 64, 65, 64),
        "kv_lens": (32, 33, 64, 127, 129, 129),
        "targets": (0, 16, 31, 63, 64, 0),
    },
    {"q_lens": (400,), "targets": (272,), "target_group_size": 255},
)


def matrix(problem: type[HstuProblem], dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
    """Every size and mask, every head dim and dtype, with and without a bias, contiguous and strided."""
    found = []
    for i, size in enumerate(_SIZES):
        for j, d in enumerate(head_dims):
            for bias, heads in ((0, 2), (1, 2), (3, 3)):
                number = i + j + bias
                found.append(
                    problem(
                        heads,
                        d,
                        **size,  # type: ignore[arg-type]
                        bias_heads=bias,
                        dtype=dtypes[number % len(dtypes)],
                        inputs=("normal", "strided", "large")[number % 3],
                    )
                )
    return found


#: Lengths at, below and above multiples of tiles and blocks, as the sequences of one batch.
_EDGES = (1, 15, 17, 32, 33, 47, 63, 64, 65, 129)


def boundaries(
    problem: type[HstuProblem], dtypes: Sequence[str], head_dims: Sequence[int]
) -> list[HstuProblem]:
    """The edges as lengths, with many keys, with a bias, and as numbers of targets, rotating through dtypes
    and head dims.
    """
    sizes: tuple[dict[str, object], ...] = (
        {"q_lens": _EDGES},
        {"q_lens": _EDGES, "kv_lens": (130,) * len(_EDGES)},
        {"q_lens": _EDGES, "bias_heads": 1},
        {"q_lens": (129,) * len(_EDGES), "targets": _EDGES, "target_group_size": 5},
    )
    return [
        problem(1, head_dims[i % len(head_dims)], **size, dtype=dtypes[i % len(dtypes)])  # type: ignore[arg-type]
        for i, size in enumerate(sizes)
    ]


#: Where of a warp's rows, 16, 32 or 64, the first or the last one alone sees a key tile of 32, 64, 80 or 128
#: keys, or alone does not see all of it: queries begin so many keys late, and windows end there; the last row
#: is the first one of a group, or the first one that is no context.
_LATE = (1, 14, 17, 62)
_MASK_EDGES: tuple[dict[str, object], ...] = (
    {"q_lens": (130,) * len(_LATE), "kv_lens": tuple(130 + late for late in _LATE)},
    {"q_lens": (130,), "kv_lens": (147,), "window": (2, 0)},
    {"q_lens": (130,), "kv_lens": (147,), "window": (18, 0)},
    {"q_lens": (130,), "kv_lens": (147,), "window": (79, 0)},
    {"q_lens": (400,), "targets": (272,), "target_group_size": 255},
    {"q_lens": (300,), "contexts": (63,)},
)


def mask_boundaries(
    problem: type[HstuProblem], dtypes: Sequence[str], head_dims: Sequence[int]
) -> list[HstuProblem]:
    """The masks' edges, without a bias and with one, for each head dim: their tiles differ."""
    return [
        problem(1, d, **size, bias_heads=bias, dtype=dtypes[i % len(dtypes)])  # type: ignore[arg-type]
        for d in head_dims
        for bias in (0, 1)
        for i, size in enumerate(_MASK_EDGES)
    ]


def paged(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
    return [
        HstuProblem(2, d, **size, page_size=page_size, dtype=dtypes[(i + j) % len(dtypes)])  # type: ignore[arg-type]
        for i, size in enumerate(_PAGED)
        for j, d in enumerate(head_dims)
        for page_size in (32, 64)
        if d * page_size <= 128 * 64
    ]


def paged_boundaries(dtypes: Sequence[str], head_dims: Sequence[int]) -> list[HstuProblem]:
    """Histories and targets that end on either side of a page boundary."""
    return [
        HstuProblem(1, head_dims[0], **edges, page_size=page_size, dtype=dtypes[i % len(dtypes)])  # type: ignore[arg-type]
        for edges in _PAGED_EDGES
        for i, page_size in enumerate((32, 64))
    ]


def large_problems(
    problem: type[HstuProblem],
    features: Sequence[Mapping[str, object]],
    dtypes: Sequence[str],
    head_dims: Sequence[int],
) -> list[HstuProblem]:
    """More keys than 16 bits count; and with each feature, more than 63 work items of which later ones are
    not a sequence's first.
    """
    dtype, d = dtypes[-1], head_dims[0]
    found = [problem(1, d, (3,), (2**16 + 45,), dtype=dtype)]
    for feature in features:
        found.append(problem(7, d, (5, 5, 5, 300, 5, 5), **feature, dtype=dtype))  # type: ignore[arg-type]
    return found


def beyond(
    problem: type[HstuProblem],
    features: Sequence[Mapping[str, object]],
    count: int,
    dtype: str,
    head_dim: int,
) -> list[HstuProblem]:
    """Heads, each with a bias of its own, and sequences, of one and of several tiles."""
    found = []
    for feature in features:
        per_head = {**feature, **({"bias_heads": count + 1} if "bias_heads" in feature else {})}
        lengths = (5, 20) * (count // 2) + (140, 150)
        found += [
            problem(count + 1, head_dim, (5, 20), (9, 70), **per_head, dtype=dtype),  # type: ignore[arg-type]
            problem(1, head_dim, lengths, **feature, dtype=dtype),  # type: ignore[arg-type]
        ]
    return found


def growing(
    problem: type[HstuProblem], features: Sequence[Mapping[str, object]], dtype: str, head_dim: int
) -> Iterator[list[HstuProblem]]:
    """More and more keys before the queries, queries, and sequences, with each feature."""
    for feature in features:

        def of(q_lens: tuple[int, ...], history: int, feature: Mapping[str, object] = feature) -> HstuProblem:
            keys = tuple(length + history for length in q_lens)
            return problem(1, head_dim, q_lens, keys, **feature, dtype=dtype)  # type: ignore[arg-type]

        yield [of((200,), 64 * n - 3) for n in GROWTH]
        yield [of((64 * n - 3,), 5) for n in GROWTH[:5]]
        yield [of((70,) * n, 70) for n in GROWTH]


def beyond_32_bits(dtype: str, head_dims: Sequence[int]) -> list[Huge]:
    """More than 2**32 elements of many tokens; of many keys and few queries; of the bias; and of the cache.
    The last blocks compute the short last sequence.
    """
    heads, d, length = 32, 64, 40
    if d not in head_dims:
        return []
    tokens = 2**32 // (heads * d) + length
    short = HstuProblem(heads, d, (length,), scaling_seqlen=length, dtype=dtype)
    paged = replace(short, kv_lens=(130,), targets=(16,), page_size=64)
    # A head's bias has a row for each of the keys, as wide as they are many.
    biased = replace(short, heads=2, kv_lens=(64,), window=(30, 0), bias_heads=2)

    def of(few: HstuProblem, last: HstuProblem, **many: object) -> Huge:
        return Huge(replace(few, **many), few, last, last.heads)  # type: ignore[arg-type]

    return [
        of(replace(short, q_lens=(200, 200, length)), short, q_lens=(tokens // 2, tokens // 2, length)),
        of(replace(short, q_lens=(0, length), kv_lens=(500, length)), short, kv_lens=(tokens, length)),
        of(replace(biased, kv_lens=(200,)), biased, kv_lens=(2**16 + 64,)),
        of(
            replace(paged, q_lens=(0, length), kv_lens=(500, 130), targets=(0, 16)),
            paged,
            kv_lens=(tokens // 2, 130),
        ),
    ]


def gradients_beyond_32_bits(problem: type[HstuProblem], dtype: str, head_dims: Sequence[int]) -> list[Huge]:
    """More than 2**32 elements of many tokens, and of the bias and its gradient. The last blocks have the
    last keys of the last sequence, which its last queries alone see.
    """
    heads, d, length, seen = 64, 128, 2**14, 32
    if d not in head_dims:
        return []
    short = problem(heads, d, (seen,), scaling_seqlen=seen, dtype=dtype)
    biased = replace(short, heads=2, q_lens=(64,), window=(-1, -1), bias_heads=2)
    return [
        Huge(replace(short, q_lens=(length,) * 33), replace(short, q_lens=(256,) * 3), short, heads),
        # two tiles of queries, at most
        Huge(
            replace(biased, kv_lens=(2**16 + 64,)), replace(biased, kv_lens=(576,)), biased, 2 * biased.heads
        ),
    ]


def calibration_problems(problem: type[HstuProblem]) -> list[HstuProblem]:
    """Few enough blocks for each to have an SM: causal, contexts and targets, a window, one bias per head."""
    masks: tuple[dict[str, object], ...] = (
        {"q_lens": (200, 17, 128)},
        {"q_lens": (64, 100), "kv_lens": (90, 260)},
        {"q_lens": (150, 129), "contexts": (3, 20), "targets": (25, 30), "target_group_size": 4},
        {"q_lens": (200, 100), "window": (40, 0)},
        {"q_lens": (130, 70), "bias_heads": 2},
    )
    return [problem(2, d, **mask) for mask in masks for d in (64, 128)]  # type: ignore[arg-type]


def bench_problems(problem: type[HstuProblem]) -> list[HstuProblem]:
    """Equal lengths, 16 heads: causal, contexts and targets, groups of targets, one bias per head."""
    masks: tuple[dict[str, object], ...] = (
        {"q_lens": (4096,) * 4},
        {"q_lens": (2048,) * 4},
        {"q_lens": (4096,) * 4, "contexts": (3,) * 4, "targets": (256,) * 4},
        {"q_lens": (2048,) * 8, "targets": (1024,) * 8, "target_group_size": 16},
        {"q_lens": (2048,) * 4, "bias_heads": 16},
    )
    return [problem(16, d, dtype="bf16", **mask) for mask in masks for d in (64, 128)]  # type: ignore[arg-type]
