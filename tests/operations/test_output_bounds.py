"""The limits of the errors of attention's o: torch's o in the same dtype passes, and no row that is a tenth
off does.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ladder.operations import DTYPES, INPUTS, Problem, get_operation

OPERATION = get_operation("attention")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_no_row_may_be_a_tenth_off(dtype: str, is_causal: bool) -> None:
    """Under a causal mask, the last rows of o are small beside the errors of the first ones."""
    problem = Problem(1, 2, 256, 256, 64, dtype=dtype, is_causal=is_causal)
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    for row in range(256):
        o = expected.outputs["o"].clone()
        o[:, 1, row] *= 0.9
        deviation = expected.deviation("o", o)
        assert not deviation.is_allowed and deviation.place // 64 == 256 + row, row


def test_an_error_within_the_largest_bound_fails() -> None:
    """A tenth in the last quarter of the rows, which one bound for the whole tensor does not see."""
    problem = Problem(1, 2, 256, 256, 64, dtype="bf16", is_causal=True)
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    exact, largest = expected.outputs["o"], expected.bounds["o"]
    hidden = (0.1 * exact).abs().amax(-1, keepdim=True) <= largest
    hidden[:, :, :192] = False
    assert hidden.sum() > 32
    o = torch.where(hidden, 0.9 * exact, exact)
    assert expected.error("o", o) <= largest
    wrong = expected.wrong({"o": o, "lse": expected.outputs["lse"]})
    assert torch.equal(wrong["o"].any(-1, keepdim=True), hidden)
    lse = {"lse": expected.outputs["lse"]}
    assert not expected.passed(expected.errors({"o": o, **lse}))
    assert OPERATION.diagnose(problem, {"o": o, **lse}, expected, "fragments")


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("inputs", INPUTS)
def test_torch_passes(dtype: str, inputs: str, backend: SDPBackend) -> None:
    for length, is_causal in ((100, False), (256, True)):
        problem = Problem(1, 2, length, length, 64, dtype=dtype, is_causal=is_causal, inputs=inputs)
        of_torch = OPERATION.make_inputs(problem)
        q, k, v = (torch.as_tensor(of_torch[name]) for name in ("q", "k", "v"))
        with sdpa_kernel(backend):
            o = scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=problem.softmax_scale)
        expected = OPERATION.reference(problem, of_torch)
        deviation = expected.deviation("o", o)
        if (backend, dtype, inputs) == (SDPBackend.FLASH_ATTENTION, "f16", "equal"):
            # Its rows are 1.00005 times the exact ones, more than an exp in fp32 explains.
            assert deviation.error <= deviation.bound
        else:
            assert deviation.is_allowed, (problem, deviation)


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_too_small_may_be_0(inputs: str, dtype: str) -> None:
    """The weights of keys that are too small for fp32, beside a value that is 0."""
    problem = Problem(1, 1, 70, 60, 32, dtype=dtype, inputs=inputs, scale=4.0)
    of_v = OPERATION.make_inputs(problem)
    q, k, v = (torch.as_tensor(of_v[name]).double() for name in ("q", "k", "v"))
    s = q @ k.mT * 4.0
    v[0, 0, s[0, 0].argmax(-1).unique()] = 0
    of_v["v"] = v.to(torch.as_tensor(of_v["v"]).dtype)
    expected = OPERATION.reference(problem, of_v)
    weights = torch.softmax(s, -1)
    o = weights.masked_fill(weights < 2.0**-126, 0) @ v
    assert expected.deviation("o", o).is_allowed


@pytest.mark.parametrize(
    ("features", "wrong"),
    [
        ({"window": (20, 5)}, {"window": (20, 4)}),
        ({"window": (20, 5)}, {"window": (19, 5)}),
        ({"window": (20, 5)}, {}),
        ({"softcap": 2.0}, {"softcap": 2.2}),
        ({"softcap": 30.0}, {}),
        ({"sinks": True}, {}),
    ],
    ids=str,
)
def test_other_features_do_not_pass(features: dict[str, Any], wrong: dict[str, Any]) -> None:
    """A key more or less in the window, a cap that is a little off, no sinks."""
    problem, other = (Problem(1, 2, 100, 120, 64, dtype="bf16", **given) for given in (features, wrong))
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    outputs = OPERATION.reference(other, OPERATION.make_inputs(other)).outputs
    assert expected.passed(expected.errors(expected.outputs))
    assert not expected.passed(expected.errors(outputs))


def test_rows_without_keys_are_exact() -> None:
    """o = 0 and lse = -inf; a finite lse is infinitely off, and NaN never right."""
    problem = Problem(1, 1, 50, 20, 64, dtype="bf16", window=(-1, 0))
    expected = OPERATION.reference(problem, OPERATION.make_inputs(problem))
    o, lse = expected.outputs["o"], expected.outputs["lse"]
    assert not o[:, :, :30].any() and (lse[:, :, :30] == -torch.inf).all()
    assert expected.passed(expected.errors({"o": o, "lse": lse}))
    for wrong in (-1e30, torch.inf, torch.nan):
        assert not expected.passed(expected.errors({"o": o, "lse": lse.nan_to_num(neginf=wrong)}))
