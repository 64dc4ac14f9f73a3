"""What any kernel must do for a problem, whatever its algorithm's details: the products, and the bytes that
are read and written at least once.
"""

from __future__ import annotations

import math

from ladder.counts.time.gpus import Gpu
from ladder.counts.time.work import LaunchWork
from ladder.operations import DTYPE_BYTES, AnyProblem, DecodingProblem, Problem, operation_of


def least_work(gpu: Gpu, problem: AnyProblem) -> LaunchWork:
    """The problem's operations, in the fastest products that take its dtype, on all multiprocessors."""
    return least_products(gpu, needed_operations(problem), problem.dtype)


def least_products(gpu: Gpu, operations: float, dtype: str | None) -> LaunchWork:
    kind, amount = ("tf32", operations) if dtype == "f32" else ("f16", operations)
    if gpu.rate(kind) is None:
        kind, amount = "fma", operations / 2
    return LaunchWork("the least", (gpu.multiprocessors, 1, 1), (1, 1, 1), {kind: amount})


def needed_operations(problem: AnyProblem) -> float:
    """The problem's operations; under a causal mask those of the pairs that it keeps, if they are fewer than
    the half that is the convention for quoting speeds.
    """
    if isinstance(problem, Problem) and problem.is_causal:
        share = kept_pairs(problem) / (problem.q_len * problem.kv_len / 2)
        return problem.flops * min(share, 1.0)
    return problem.flops


def kept_pairs(problem: Problem) -> int:
    """How many pairs of a query and a key a head keeps: all, or those of a causal mask (key j <= query i)."""
    if not problem.is_causal:
        return problem.q_len * problem.kv_len
    ramp = min(problem.q_len, problem.kv_len)
    return ramp * (ramp + 1) // 2 + (problem.q_len - ramp) * problem.kv_len


def least_bytes(problem: AnyProblem) -> tuple[int, int]:
    """The distinct bytes that must be read and written. Of inputs, those that are known to be read whole."""
    outputs = operation_of(problem).outputs(problem)
    written = sum(math.prod(output.shape) * DTYPE_BYTES[output.dtype] for output in outputs)
    if isinstance(problem, DecodingProblem):
        return problem.cache_bytes, written
    if isinstance(problem, Problem) and not problem.features - {"strided", "softcap", "sinks"}:
        keys = min(problem.kv_len, problem.q_len) if problem.is_causal else problem.kv_len
        elements = problem.heads * problem.q_len * problem.head_dim
        elements += problem.num_kv_heads * keys * (problem.head_dim + problem.value_dim)
        return problem.batch * elements * DTYPE_BYTES[problem.dtype or "f32"], written
    return 0, written
