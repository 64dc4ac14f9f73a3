"""The mask of stages/include/ladder/hstu_mask.h, as a matrix."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ladder.errors import InvalidProblem

if TYPE_CHECKING:
    from torch import Tensor

CAUSAL = (-1, 0)


def hstu_mask(
    queries: int,
    keys: int,
    contexts: int = 0,
    targets: int = 0,
    target_group_size: int = 1,
    window: tuple[int, int] = CAUSAL,
    intervals: Tensor | None = None,
) -> Tensor:
    """Makes the boolean matrix (queries, keys) of one sequence: True where the query sees the key.

    The queries are the last ``queries`` of the sequence's ``keys`` tokens, so query i is at position r = i +
    keys - queries. The first ``contexts`` tokens are contexts and the last ``targets`` targets.

    ``window`` (left, right): r sees the keys r - left .. r + right; a negative side has no limit, so (-1, 0)
    is causal and (-1, -1) no mask. With a causal mask, a context sees every token that is not a target, and a
    target sees only those targets of its own group of ``target_group_size`` that do not come after it.
    ``intervals`` (an odd number of bounds f, queries), int32, replaces the window: query i sees j < f[0, i]
    and f[1, i] <= j < f[2, i], f[3, i] <= j < f[4, i], ..

    Raises :class:`InvalidProblem` for a meaningless combination.

    >>> ladder.hstu_mask(4, 4, targets=2).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 1, 1, 0],
            [1, 1, 0, 1]], dtype=torch.int32)
    """
    import torch

    check_window(window)
    check_mask(queries, keys, contexts, targets, target_group_size, window)
    r = torch.arange(keys - queries, keys)[:, None]
    j = torch.arange(keys)[None, :]
    if intervals is not None:
        check_intervals(intervals, queries, contexts, targets, window)
        bounds = intervals.long()[:, :, None]
        seen = j < bounds[0]
        for first, end in zip(bounds[1::2], bounds[2::2], strict=True):
            seen = seen | ((j >= first) & (j < end))
        return seen
    left, right = window
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if left >= 0:
        seen &= j >= r - left
    if right >= 0:
        seen &= j <= r + right
    history = keys - targets
    seen = torch.where(r < contexts, j < history, seen)
    group_begin = history + (r - history).div(target_group_size, rounding_mode="floor") * target_group_size
    return seen & ~((r >= history) & (j >= history) & (j < group_begin))


def parse_window(text: str) -> tuple[int, int]:
    """Parses ``L,R`` from the command line. Raises :class:`argparse.ArgumentTypeError`."""
    try:
        left, right = (int(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not L,R, such as -1,0") from None
    return left, right


def check_window(window: Any) -> None:
    """Raises :class:`InvalidProblem` unless ``window`` is a pair of whole numbers from -1 on."""
    sides = tuple(window) if isinstance(window, tuple | list) else ()
    if len(sides) != 2 or not all(isinstance(side, int) and side >= -1 for side in sides):
        raise InvalidProblem(
            f"window is {window!r}; it must be (left, right), whole numbers from -1, which has no limit"
        )


def check_mask(
    queries: int, keys: int, contexts: int, targets: int, group_size: int, window: tuple[int, int]
) -> None:
    """Raises :class:`InvalidProblem` for an invalid mask."""
    if not 0 <= queries <= keys:
        raise InvalidProblem(
            f"{queries} queries and {keys} keys: the queries are the last of the sequence's tokens, "
            "so there are at most as many as keys"
        )
    if contexts < 0 or targets < 0 or contexts + targets > keys:
        raise InvalidProblem(
            f"{contexts} contexts and {targets} targets do not fit into a sequence of {keys} tokens"
        )
    if group_size < 1:
        raise InvalidProblem(f"target_group_size is {group_size}; it must be 1 or more")
    if (contexts or targets) and tuple(window) != CAUSAL:
        raise InvalidProblem(
            f"window {tuple(window)} with contexts or targets has no meaning; with them it is (-1, 0), causal"
        )


def check_intervals(
    intervals: Tensor, queries: int, contexts: int, targets: int, window: tuple[int, int]
) -> None:
    """Raises :class:`InvalidProblem` for intervals of the wrong shape, or combined with another mask."""
    if contexts or targets or tuple(window) != CAUSAL:
        raise InvalidProblem(
            f"window is {tuple(window)}; intervals replace the mask, so it stays {CAUSAL}, without contexts "
            "or targets"
        )
    if intervals.is_floating_point():
        raise InvalidProblem(f"intervals are {intervals.dtype}; they must be int32", "Pass intervals.int().")
    if intervals.dim() != 2 or intervals.shape[0] % 2 == 0 or intervals.shape[1] != queries:
        raise InvalidProblem(
            f"intervals are {tuple(intervals.shape)}; wanted (an odd number of bounds, {queries} queries)"
        )
