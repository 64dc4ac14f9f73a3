"""What the rungs are tried on: the default problem, the shape matrix, the calibration problems."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ladder.problem import DTYPES, INPUTS, Problem

#: What ``ladder compare`` takes on the emulator unless told otherwise: about a second of emulation a rung.
DEFAULT_PROBLEM = Problem(1, 2, 256, 256, 64)
#: The same on a GPU, large enough to fill one.
DEFAULT_GPU_PROBLEM = Problem(4, 16, 1024, 1024, 64)

HEAD_DIMS = (32, 64, 128)

#: The shape matrix: every value of every axis, around tile sizes (16, 32, 64), one off them, and 1.
AXES: dict[str, tuple[Any, ...]] = {
    "q_len": (64, 1, 16, 17, 100, 129),
    "kv_len": (64, 1, 15, 33, 80, 130),
    "head_dim": HEAD_DIMS,
    "dtype": DTYPES,
    "is_causal": (False, True),
    "batch_heads_kv": ((1, 2, 2), (2, 4, 2), (1, 3, 1)),
    "inputs": INPUTS,
    "scale": (None, 0.25, -0.125, 0.0),
}

#: At most one block an SM of an H200 (132) for every rung, where the hardware's counters are exact.
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


def pairwise_problems(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """A few dozen problems in which any two values of any two axes of the matrix meet at least once."""
    return [_problem(row) for row in _pairwise(_axes(dtypes, head_dims))]


def full_problems(dtypes: Sequence[str] = DTYPES, head_dims: Sequence[int] = HEAD_DIMS) -> list[Problem]:
    """The whole grid of sizes with ordinary inputs, and the whole grid of inputs at a few sizes."""
    axes = _axes(dtypes, head_dims)
    sizes = {**axes, "inputs": ("normal",), "scale": (None,)}
    values = {**axes, "q_len": (64, 100), "kv_len": (80,), "batch_heads_kv": ((1, 2, 1),)}
    rows = itertools.chain(_product(sizes), _product(values))
    return list(dict.fromkeys(_problem(row) for row in rows))


def _axes(dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, tuple[Any, ...]]:
    return {**AXES, "dtype": tuple(dtypes), "head_dim": tuple(head_dims)}


def _problem(row: dict[str, Any]) -> Problem:
    sizes = dict(row)
    batch, heads, kv_heads = sizes.pop("batch_heads_kv")
    return Problem(batch=batch, heads=heads, kv_heads=kv_heads, **sizes)


def _product(axes: dict[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def _pairwise(axes: dict[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Greedy and without chance: each row starts from an uncovered pair and takes, axis by axis, the value
    that covers most of what is left and, of equals, the one used least so far."""
    names = list(axes)
    pairs: Iterable[tuple[int, int]] = itertools.combinations(range(len(names)), 2)
    left = {
        (i, vi, j, vj): None
        for i, j in pairs
        for vi in range(len(axes[names[i]]))
        for vj in range(len(axes[names[j]]))
    }
    used: Counter[tuple[int, int]] = Counter()
    rows = []
    while left:
        i, vi, j, vj = next(iter(left))
        row = {i: vi, j: vj}
        for axis in range(len(names)):
            if axis not in row:
                ranks = [
                    (sum(pair in left for pair in _pairs_with(row, axis, value)), -used[axis, value])
                    for value in range(len(axes[names[axis]]))
                ]
                row[axis] = ranks.index(max(ranks))
        used.update(row.items())
        for axis, value in row.items():
            for pair in _pairs_with(row, axis, value):
                left.pop(pair, None)
        rows.append({name: axes[name][row[axis]] for axis, name in enumerate(names)})
    return rows


def _pairs_with(row: dict[int, int], axis: int, value: int) -> Iterator[tuple[int, int, int, int]]:
    for other, other_value in row.items():
        if other < axis:
            yield other, other_value, axis, value
        elif other > axis:
            yield axis, value, other, other_value
