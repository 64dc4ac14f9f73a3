"""torch's attention as a baseline computes what the rungs compute; here by its backend for CPUs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ladder.operations import BackwardProblem, Problem, get_operation


@pytest.mark.parametrize("problem", [Problem, BackwardProblem])
def test_it_is_the_reference(problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    problem = problem(1, 4, 20, 30, 32, kv_heads=2, dtype="f32", is_causal=True, scale=0.3)
    operation = get_operation(problem.operation)
    inputs = operation.make_inputs(problem)
    runs = operation.baselines(problem, inputs)
    assert "torch flash" in runs and "torch cuDNN" not in runs
    first = operation.output_names[0]
    expected = operation.reference(problem, inputs).outputs[first]
    for _ in range(2):  # the second time, of gradients alone
        assert (runs["torch flash"](inputs) - expected).abs().max() < 1e-5
