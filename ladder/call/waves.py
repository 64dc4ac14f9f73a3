"""Which rung is fastest where a GPU has few work items per multiprocessor: a model of waves.

A call takes as long as its busiest multiprocessor. On a multiprocessor with ``items`` work items, which have
the rows of ``filled`` whole items and ``tiles`` tiles of keys, a rung takes

    launch + item * items + row * filled + tile * tiles

microseconds. The four costs are least squares of the relative errors on ``results/h200/small_grids.csv``
(``tools/measure/small_grids.py``). They say what each idea buys and costs: blocks without a loop over items
begin soonest, a counter adds a microsecond to each launch and pays it back where items differ in length.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ladder.operations import AnyProblem, Problem

#: The rung that :data:`COSTS` are compared with, which is the fastest for many work items.
LAST = "v12c"
#: Of work items per multiprocessor; with more, :data:`LAST` is the fastest.
_MOST_WAVES = 16
#: Rows of a work item, and keys of a tile, by head dim. All rungs here have the same.
_ROWS = {64: 192, 128: 192, 256: 128}
_KEYS = {64: 128, 128: 80, 256: 64}


class Cost(NamedTuple):
    """Microseconds."""

    launch: float
    item: float
    tile: float
    row: float


#: By the rung's number and head dim.
COSTS: dict[str, dict[int, Cost]] = {
    "v9": {
        64: Cost(1.134, 1.715, 1.538, 1.467),
        128: Cost(0.869, 2.08, 1.301, 3.836),
        256: Cost(0.938, 2.396, 1.509, 4.419),
    },
    "v11b": {
        64: Cost(3.181, 1.419, 1.278, 0.0),
        128: Cost(2.598, 1.523, 1.177, 0.409),
        256: Cost(1.349, 3.179, 1.27, 0.71),
    },
    LAST: {
        64: Cost(4.372, 0.666, 1.376, 0.412),
        128: Cost(4.085, 0.874, 1.206, 1.345),
        256: Cost(3.452, 2.216, 1.314, 1.602),
    },
}


def fastest(problem: AnyProblem, multiprocessors: int) -> str | None:
    """The number of the rung that the model says is fastest; None for problems that are not the model's."""
    if not isinstance(problem, Problem) or problem.features - {"strides"} or problem.dtype == "f32":
        return None
    d = problem.head_dim
    if d not in _ROWS or _item_count(problem) > _MOST_WAVES * multiprocessors:
        return None
    return min(COSTS, key=lambda rung: microseconds(problem, multiprocessors, rung, COSTS[rung][d]))


def microseconds(problem: Problem, multiprocessors: int, rung: str, cost: Cost) -> float:
    return sum(c * n for c, n in zip(cost, load(problem, multiprocessors, rung), strict=True))


def load(problem: Problem, multiprocessors: int, rung: str) -> tuple[float, float, float, float]:
    """What the costs are multiplied by: 1, and the items, tiles and filled items of the busiest
    multiprocessor.
    """
    lengths = _lengths(problem, rung)
    if rung == "v11b":  # each block takes every so many-th item
        shares = [[*islice(lengths, first, None, multiprocessors)] for first in range(multiprocessors)]
    else:  # a block that is done takes the next item
        shares = _dealt(lengths, multiprocessors)
    busiest = max(shares, key=_weight)
    rows = _ROWS[problem.head_dim]
    return 1, len(busiest), sum(busiest), len(busiest) * min(problem.q_len, rows) / rows


#: An item without its tiles takes about as long as this part of a tile.
_ITEM = 0.3


def _weight(lengths: Sequence[int]) -> float:
    return sum(lengths) + _ITEM * len(lengths)


def _dealt(lengths: Sequence[int], blocks: int) -> list[list[int]]:
    shares: list[list[int]] = [[] for _ in range(blocks)]
    done = [(0.0, block) for block in range(blocks)]
    for length in lengths:
        weight, block = done[0]
        shares[block].append(length)
        heapq.heapreplace(done, (weight + length + _ITEM, block))
    return shares


def _item_count(problem: Problem) -> int:
    return problem.batch * problem.heads * -(-problem.q_len // _ROWS[problem.head_dim])


def _lengths(problem: Problem, rung: str) -> list[int]:
    """The tiles of keys of each work item, in the rung's order."""
    of_head = [*_tiles_of_head(problem, is_end_aligned=rung == LAST)]
    heads = problem.batch * problem.heads
    if not problem.is_causal:
        return of_head * heads
    together = min(16 if rung == LAST else problem.heads, heads)
    found: list[int] = []
    for first in range(0, heads, together):
        group = min(together, heads - first)
        found += [length for length in of_head for _ in range(group)]
    return found


def _tiles_of_head(problem: Problem, *, is_end_aligned: bool) -> Iterator[int]:
    """The last rows of a head first."""
    n, m, rows = problem.q_len, problem.kv_len, _ROWS[problem.head_dim]
    end = -(-n // 64) * 64 if is_end_aligned else -(-n // rows) * rows
    for last in range(end, 0, -rows):
        yield -(-(min(m, last) if problem.is_causal else m) // _KEYS[problem.head_dim])
