"""The bounds on gradients' errors: torch's gradients in the same dtype pass, a missing tile does not."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ladder.operations import DTYPES, BackwardProblem, get_operation

OPERATION = get_operation("attention_backward")
TILE = 64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_tile_of_a_gradient_may_be_missing(dtype: str, is_causal: bool) -> None:
    problem = BackwardProblem(1, 2, 256, 256, 64, dtype=dtype, is_causal=is_causal)
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    for name in OPERATION.output_names:
        for first in range(0, 256, TILE):
            gradient = expected.outputs[name].clone()
            gradient[:, :, first : first + TILE] = 0
            assert expected.error(name, gradient) > 4 * expected.bounds[name], (name, first)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_torch_passes(dtype: str, is_causal: bool) -> None:
    problem = BackwardProblem(1, 2, 100, 100, 64, dtype=dtype, is_causal=is_causal)
    inputs = OPERATION.make_inputs(problem)
    q, k, v = (torch.as_tensor(inputs[name]).clone().requires_grad_() for name in ("q", "k", "v"))
    o = scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=problem.softmax_scale)
    gradients = torch.autograd.grad(o, (q, k, v), inputs["d_o"])
    expected = OPERATION.reference(problem, inputs)
    for name, gradient in zip(OPERATION.output_names, gradients, strict=True):
        assert expected.error(name, gradient) <= expected.bounds[name], name
