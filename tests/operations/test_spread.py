"""The limits of the errors of o together: kernels that round each weight and o once pass on all problems,
also where many weights are rounded alike; kernels that round oftener do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from ladder.operations import Problem, get_operation
from ladder.operations.attention.rows import query_rows

OPERATION = get_operation("attention")


def computed(
    problem: Problem,
    inputs: Mapping[str, Any],
    *,
    tile: int = 64,
    slack: float = 0.0,
    sink_last: bool = False,
    rounds_sums: bool = False,
    below_cap: float | None = None,
    gain: float = 0.0,
) -> Tensor:
    """o as a kernel computes it that goes over tiles of keys. It updates a maximum that has grown by more
    than ``slack``, and takes the sink into account first or last. With a softcap and no sink, a kernel
    with ``below_cap`` subtracts the softcap less that number, and no maximum, as long as all weights are then
    normal numbers. ``rounds_sums`` rounds o after each tile,
    too; all weights are too large by the factor 1 + ``gain``.
    """
    q, k, v = (inputs[name] for name in "qkv")
    result = torch.empty_like(q)
    for rows in query_rows(q, k, v, sinks=inputs["sinks"], **problem.rules):
        s, sink = rows.s.float(), None if rows.sink is None else rows.sink.float()
        m, total = torch.full_like(s[..., :1], -math.inf), torch.zeros_like(s[..., :1])
        o = torch.zeros(rows.o.shape)
        if sink is not None and not sink_last:
            m, total = sink, torch.ones_like(sink)
        for first in range(0, s.shape[-1], tile):
            part = s[..., first : first + tile]
            highest = torch.maximum(m, part.amax(-1, keepdim=True))
            highest = torch.where(highest > m + slack, highest, m)
            if below_cap is not None and 0 < (problem.softcap or 0) <= 4 and sink is None:
                highest = torch.full_like(m, problem.softcap - below_cap)
            finite = highest.masked_fill(highest == -math.inf, 0)
            weights, rescale = torch.exp(part - finite), torch.exp(m - finite)
            rounded = weights.to(q.dtype).float() * (1 + gain)
            total, m = total * rescale + weights.sum(-1, keepdim=True), highest
            o = o * rescale + rounded @ rows.v[:, first : first + tile].float()
            o = o.to(q.dtype).float() if rounds_sums else o
        if sink is not None and sink_last:
            highest = torch.maximum(m, sink)
            o, total = o * torch.exp(m - highest), total * torch.exp(m - highest) + torch.exp(sink - highest)
        rows.of(result)[:] = torch.where(total > 0, o / total, 0).to(q.dtype)
    return result


KERNELS: tuple[dict[str, Any], ...] = (
    {"tile": 80},
    {"tile": 16, "slack": 5.5},
    {"tile": 128, "sink_last": True},
    {"below_cap": 0.0},
    {"below_cap": 0.17},
)
#: Weights that differ by less than a rounding error, and weights that f16 can hardly express.
ALIKE = (
    Problem(1, 6, 114, 87, 64, kv_heads=2, is_causal=True, scale=1e-3, inputs="rising", sinks=True),
    Problem(1, 2, 129, 120, 128, kv_heads=1, is_causal=True, scale=1e-3, inputs="rising"),
    Problem(2, 6, 69, 33, 64, kv_heads=2, scale=1e-3, inputs="rising", window=(40, 118), softcap=50.0),
    Problem(1, 6, 29, 117, 32, kv_heads=2, scale=4.0, inputs="equal", sinks=True),
    Problem(1, 4, 19, 19, 128, kv_heads=2, is_causal=True, scale=-1.0, inputs="equal", sinks=True),
    Problem(1, 2, 5, 5, 128, kv_heads=1, is_causal=True, scale=1.0, sinks=True),
    Problem(2, 4, 1, 2, 128, kv_heads=2, is_causal=True, scale=-1.0, inputs="dominant", sinks=True),
    Problem(2, 3, 40, 72, 64, inputs="equal", sinks=True),
    Problem(2, 3, 100, 100, 64, softcap=0.1),
    Problem(2, 3, 31, 54, 64, kv_heads=1, scale=-0.603, inputs="negative", window=(32, 124), softcap=0.1),
    Problem(2, 4, 119, 98, 32, scale=0.0, inputs="rising", window=(63, 76), sinks=True),
)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("problem", ALIKE, ids=str)
def test_weights_that_are_rounded_alike(problem: Problem, dtype: str) -> None:
    require_allowed(Problem(**{**vars(problem), "dtype": dtype}))


@pytest.mark.parametrize("seed", range(2))
def test_random_problems(seed: int) -> None:
    drawn = OPERATION.random(seed, ("f16", "bf16"), (32, 64, 128), 150)
    for problem in islice((one for one in drawn if isinstance(one, Problem) and one.q_lens is None), 40):
        require_allowed(problem)


def require_allowed(problem: Problem) -> None:
    inputs = OPERATION.make_inputs(problem)
    expected = OPERATION.reference(problem, inputs)
    for kernel in KERNELS:
        deviation = expected.deviation("o", computed(problem, inputs, **kernel))
        assert deviation.is_allowed, (problem, kernel, deviation)


@pytest.mark.parametrize(("dtype", "unit"), [("f16", 2.0**-11), ("bf16", 2.0**-8)])
@pytest.mark.parametrize("wrong", ["gain", "rounds_sums"])
def test_errors_beside_the_roundings(dtype: str, unit: float, wrong: str) -> None:
    """Weights that are half a rounding error too large, or o rounded at each of 32 tiles."""
    problem = (
        Problem(1, 2, 256, 256, 64, dtype=dtype)
        if wrong == "gain"
        else Problem(1, 2, 24, 2048, 64, dtype=dtype)
    )
    inputs = OPERATION.make_inputs(problem)
    expected = OPERATION.reference(problem, inputs)
    given: dict[str, Any] = {"gain": unit / 2} if wrong == "gain" else {"rounds_sums": True}
    assert expected.deviation("o", computed(problem, inputs)).is_allowed
    deviation = expected.deviation("o", computed(problem, inputs, **given))
    assert deviation.error <= deviation.bound and deviation.together
