import math

import pytest
import torch
from rounding import Kernel, attend

from ladder.operations import DTYPES, INPUTS, Problem, make_inputs, reference


def make(problem):
    q, k, v = make_inputs(problem)
    return reference(q, k, v, is_causal=problem.is_causal, scale=problem.softmax_scale)


@pytest.mark.parametrize("dtype, largest", [("f32", 2e-3), ("f16", 6e-3), ("bf16", 4e-2)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.25, 0.0, -0.5])
def test_bound_stays_tight(dtype, largest, is_causal, scale):
    expected = make(Problem(1, 2, 70, 65, 64, dtype=dtype, is_causal=is_causal, scale=scale))
    assert 0 < expected.error_bound < largest
    assert 0 < expected.lse_bound < 4e-4


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("dtype, depth", [("f32", 0), ("f16", 8), ("bf16", 16)])
def test_a_kernel_that_rounds_at_its_worst_passes(dtype, depth, inputs):
    kernel = Kernel(depth, tile=16, slack=1.0, exp2_error=1.0)
    for (n, m, d), scale in (
        ((1, 1, 32), 1.0),
        ((3, 100, 64), 0.0),
        ((30, 30, 128), 1e-3),
        ((20, 33, 32), None),
    ):
        problem = Problem(1, 1, n, m, d, dtype=dtype, inputs=inputs, scale=scale, is_causal=n == m)
        q, k, v = make_inputs(problem)
        how = {"is_causal": problem.is_causal, "scale": problem.softmax_scale}
        o, lse = attend(kernel, q[0, 0], k[0, 0], v[0, 0], **how)
        expected = reference(q, k, v, **how)
        assert expected.deviation("o", o[None, None]).is_allowed, problem
        assert expected.error("lse", lse[None, None]) <= expected.lse_bound, problem


def test_rows_in_parts_make_the_same_reference(monkeypatch):
    problem = Problem(1, 2, 70, 65, 64, dtype="f16", is_causal=True, kv_heads=1)
    whole = make(problem)
    monkeypatch.setattr("ladder.operations.attention.rows.LOGITS_AT_ONCE", 8 * 65)
    parts = make(problem)
    assert torch.allclose(parts.o, whole.o, rtol=0, atol=1e-14) and torch.allclose(parts.lse, whole.lse)
    assert torch.allclose(parts.limits["o"], whole.limits["o"])
    assert parts.lse_bound == pytest.approx(whole.lse_bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_in_f16_do_not_pass(dtype):
    """Weights or their sums with f16 precision must fail where fp32 is required."""
    problem = Problem(1, 2, 128, 256, 64, dtype=dtype)
    q, k, _ = make_inputs(problem)
    expected = make(problem)
    s = q.double() @ k.double().mT * problem.softmax_scale
    assert expected.error("lse", torch.logsumexp(s.half().double(), -1)) > expected.lse_bound
    weight_sum = torch.zeros(1, 2, 128, dtype=torch.float16)
    for tile in s.exp().split(64, -1):
        weight_sum += tile.sum(-1).half()
    assert expected.error("lse", weight_sum.double().log()) > expected.lse_bound


def test_unwritten_outputs_fail():
    expected = make(Problem(1, 1, 4, 4, 32, dtype="f32"))
    o = expected.o.clone()
    o[0, 0, 0, 0] = math.nan
    assert not expected.deviation("o", o).is_allowed
    assert not expected.error("lse", torch.full_like(expected.lse, math.nan)) <= expected.lse_bound
