"""The limits of gradients' errors: torch's gradients in the same dtype pass, a missing tile does not, and no
row that is a quarter off.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ladder.operations import DTYPES, INPUTS, BackwardProblem, get_operation

OPERATION = get_operation("attention_backward")
GRADIENTS = ("dq", "dk", "dv")
TILE = 64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_tile_of_a_gradient_may_be_missing(dtype: str, is_causal: bool) -> None:
    problem = BackwardProblem(1, 2, 256, 256, 64, dtype=dtype, is_causal=is_causal)
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    for name in GRADIENTS:
        for first in range(0, 256, TILE):
            gradient = expected.outputs[name].clone()
            gradient[:, :, first : first + TILE] = 0
            assert expected.error(name, gradient) > 4 * expected.bounds[name], (name, first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_row_may_be_a_quarter_off(dtype: str) -> None:
    """Under a causal mask, the last rows of dK and dV are small beside the errors of the first ones."""
    problem = BackwardProblem(1, 2, 256, 256, 64, dtype=dtype, is_causal=True)
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    for name in GRADIENTS:
        for row in range(name == "dq", 256):  # the first query sees one key, and its dQ is 0
            gradient = expected.outputs[name].clone()
            gradient[:, 1, row] *= 0.75
            deviation = expected.deviation(name, gradient)
            assert not deviation.is_allowed and deviation.place // 64 == 256 + row, (name, row)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_torch_passes(dtype: str, is_causal: bool) -> None:
    """With the o that it computes itself, by its plain backend: the flash backend's gradients were seen to
    reach 1.001 of a bound on a CPU.
    """
    problem = BackwardProblem(1, 2, 100, 100, 64, dtype=dtype, is_causal=is_causal)
    inputs = OPERATION.make_inputs(problem)
    q, k, v = (torch.as_tensor(inputs[name]).clone().requires_grad_() for name in ("q", "k", "v"))
    with sdpa_kernel(SDPBackend.MATH):
        o = scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=problem.softmax_scale)
        gradients = torch.autograd.grad(o, (q, k, v), inputs["d_o"])
    expected = OPERATION.reference(problem, {**inputs, "o": o.detach()})
    errors = expected.errors(dict(zip(GRADIENTS, gradients, strict=True)))
    assert expected.passed(errors), errors


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize(("dtype", "smallest"), [("f32", 2.0**-126), ("bf16", 2.0**-40)])
def test_what_is_too_small_may_be_0(inputs: str, dtype: str, smallest: float) -> None:
    """In f32, and in bf16 too, where weights that a kernel keeps in f16 are 0 below 2^-25."""
    problem = BackwardProblem(1, 1, 70, 60, 32, dtype=dtype, is_causal=True, inputs=inputs, scale=4.0)
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    for name, exact in expected.outputs.items():
        assert expected.deviation(name, exact.masked_fill(exact.abs() < smallest, 0)).is_allowed, name


@pytest.mark.parametrize("features", [{"window": (20, 5)}, {"softcap": 3.0}, {"sinks": True}], ids=str)
def test_no_gradient_without_its_feature_passes(features: dict[str, Any]) -> None:
    """Exact gradients of attention without a window, a softcap or sinks; and a sink's that is a tenth off."""
    problem = BackwardProblem(1, 2, 100, 120, 64, dtype="bf16", **features)
    plain = BackwardProblem(1, 2, 100, 120, 64, dtype="bf16")
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    without = OPERATION.reference(plain, OPERATION.make_inputs(plain)).outputs
    right = expected.errors(expected.outputs)
    assert expected.passed(right)
    for name in GRADIENTS:
        assert not expected.deviation(name, without[name]).is_allowed, name
    if problem.sinks:
        assert not expected.deviation("d_sinks", 0.9 * expected.outputs["d_sinks"]).is_allowed
