import math

import pytest
import torch

from ladder.inputs import make_inputs
from ladder.problem import Problem
from ladder.reference import reference


def make(problem):
    q, k, v = make_inputs(problem)
    return reference(q, k, v, is_causal=problem.is_causal, scale=problem.softmax_scale)


@pytest.mark.parametrize("dtype, largest", [("f32", 3e-5), ("f16", 5e-3), ("bf16", 4e-2)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.25, 0.0, -0.5])
def test_bound_stays_tight(dtype, largest, is_causal, scale):
    """A scale of 0 or below with a mask is where torch's own CPU attention goes wrong."""
    expected = make(Problem(1, 2, 70, 65, 64, dtype=dtype, is_causal=is_causal, scale=scale))
    assert 0 < expected.error_bound < largest


def test_exact_result_passes_and_a_wrong_one_does_not():
    expected = make(Problem(1, 1, 32, 32, 64, dtype="f16"))
    assert expected.error(expected.o.half()) <= expected.error_bound
    assert expected.lse_error(expected.lse.float()) <= expected.lse_bound
    one_key_too_few = expected.lse + math.log(31 / 32)
    assert expected.lse_error(one_key_too_few) > expected.lse_bound
    off = expected.o.clone()
    off[0, 0, 3, 5] += 0.01
    assert expected.error(off) > expected.error_bound


def test_unwritten_outputs_fail():
    expected = make(Problem(1, 1, 4, 4, 32, dtype="f32"))
    o = expected.o.clone()
    o[0, 0, 0, 0] = math.nan
    assert not expected.error(o) <= expected.error_bound
    assert not expected.lse_error(torch.full_like(expected.lse, math.nan)) <= expected.lse_bound
