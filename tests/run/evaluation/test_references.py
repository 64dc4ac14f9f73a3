"""A reference is computed once for the same inputs, and never given for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ladder.operations import Problem, get_operation
from ladder.run.evaluation import references

PROBLEM = Problem(1, 1, 16, 16, 16, dtype="f16")
OPERATION = get_operation("attention")


def test_it_is_computed_once_for_the_same_bits() -> None:
    first = references.reference_of(PROBLEM, OPERATION.make_inputs(PROBLEM))
    assert references.reference_of(PROBLEM, OPERATION.make_inputs(PROBLEM)) is first
    inputs = OPERATION.make_inputs(PROBLEM)
    inputs["v"][0, 0, 3, 1] += 1
    other = references.reference_of(PROBLEM, inputs)
    assert not other.outputs["o"].equal(first.outputs["o"])
    assert references.reference_of(PROBLEM, OPERATION.make_inputs(PROBLEM)) is first


def test_the_problem_counts_too() -> None:
    """The same inputs have another result under another scale."""
    inputs = OPERATION.make_inputs(PROBLEM)
    first = references.reference_of(PROBLEM, inputs)
    other = references.reference_of(replace(PROBLEM, scale=2.0), inputs)
    assert not other.outputs["o"].equal(first.outputs["o"])


def test_they_take_no_more_memory_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_MOST_BYTES", 1)
    inputs = OPERATION.make_inputs(PROBLEM)
    first = references.reference_of(PROBLEM, inputs)
    assert references.reference_of(PROBLEM, inputs) is not first
