"""The plumbing of tools/measure/measure_peers.py, on the CPU: layouts, gradients and what is measured."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ladder.operations import BackwardProblem, Problem, operation_of
from tools.measure import measure_peers as peers

PROBLEM = Problem(1, 4, 48, 48, 32, kv_heads=2, dtype="bf16", is_causal=True)
GRADIENTS = BackwardProblem(1, 4, 48, 48, 32, kv_heads=2, dtype="bf16", is_causal=True)


def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of (batch, heads, rows, d), in fp32."""
    return torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=True, enable_gqa=True
    ).to(q.dtype)


def heads_last(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same of (batch, rows, heads, d)."""
    return exact(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


@pytest.mark.parametrize("problem", [PROBLEM, GRADIENTS], ids=["forward", "gradients"])
@pytest.mark.parametrize("last", [False, True])
def test_a_function_and_its_gradients_are_checked_in_the_ladders_layout(problem: Problem, last: bool) -> None:
    inputs = operation_of(problem).make_inputs(problem)
    run = peers.of_function(heads_last if last else exact, problem, inputs, heads_last=last)
    assert 0 < peers.Checker(problem, inputs).error(run()) <= 1


def test_a_wrong_output_is_an_error_above_one() -> None:
    inputs = operation_of(GRADIENTS).make_inputs(GRADIENTS)
    dq, dk, dv = peers.of_function(exact, GRADIENTS, inputs)()
    checker = peers.Checker(GRADIENTS, inputs)
    assert checker.error([dq, dk, dv]) <= 1
    assert checker.error([dq, dk, 1.1 * dv]) > 1


def test_problems_cover_both_passes_masks_and_groups() -> None:
    found = [*peers.problems(["forward", "backward"])]
    assert {type(one) for one in found} == {Problem, BackwardProblem}
    for kind, dims in ((Problem, {64, 128, 256}), (BackwardProblem, {64, 128})):
        of_kind = [one for one in found if type(one) is kind]
        assert len(set(of_kind)) == len(of_kind)
        assert {one.head_dim for one in of_kind} == dims
        assert {one.q_len for one in of_kind} == {1024, 4096, 16384}
        assert {one.is_causal for one in of_kind} == {False, True}
        assert any(one.heads != one.num_kv_heads for one in of_kind)
