"""Smaller problems in place of one that is too large to emulate, and how often each occurs in it."""

from __future__ import annotations

from dataclasses import replace

from ladder.counts.time.least import kept_pairs
from ladder.errors import InvalidProblem
from ladder.operations import AnyProblem, Problem

#: Problems of so many operations are emulated whole; of one head, so many.
_WHOLE, _ONE_HEAD = 2**30, 2**32
#: Queries that stand for all: a multiple of every rung's tile of queries.
QUERIES = 768

#: Problems, each with the number of times that its work is part of the whole.
Parts = tuple[tuple[AnyProblem, float], ...]


def parts_of(problem: AnyProblem) -> Parts:
    """The problem itself, or one head, or some queries of a head and those that are left over.

    Heads do equal work. Without a mask, so do whole tiles of queries. Under a causal mask a tile of queries
    needs at least the share of its work without a mask that is the share of the pairs that the mask keeps.

    Raises :class:`InvalidProblem` if nothing smaller is known to do the same work.
    """
    if problem.flops <= _WHOLE:
        return ((problem, 1),)
    if type(problem) is not Problem or problem.features - {"strided"}:
        raise too_large(problem)
    heads = problem.batch * problem.heads
    one = replace(problem, batch=1, heads=1, kv_heads=None)
    if one.flops <= (_ONE_HEAD if problem.is_causal else _WHOLE):
        return ((one, heads),)
    if problem.is_causal:
        return by_pairs(problem)
    times, rest = divmod(problem.q_len, QUERIES)
    parts: list[tuple[AnyProblem, float]] = [(replace(one, q_len=QUERIES), heads * times)] if times else []
    return (*parts, *([(replace(one, q_len=rest), heads)] if rest else []))


def by_pairs(problem: Problem) -> Parts:
    """Some queries of a head without a mask, as often as the pairs that are kept hold theirs."""
    part = replace(
        problem, batch=1, heads=1, kv_heads=None, q_len=min(QUERIES, problem.q_len), is_causal=False
    )
    return ((part, problem.batch * problem.heads * kept_pairs(problem) / kept_pairs(part)),)


def too_large(problem: AnyProblem) -> InvalidProblem:
    return InvalidProblem(
        f"{problem} is too large to be emulated, and no smaller problem is known to stand for it",
        "Choose smaller sizes.",
    )
