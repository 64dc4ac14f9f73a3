"""measure_options.py on the CPU: what is compared with what, the inputs, and what is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from ladder.operations import BackwardProblem, Problem, operation_of
from ladder.operations.base import torch_dtypes
from ladder.run.backends.timing import Timing
from ladder.stages import discover
from tools.measure import measure_options as options
from tools.measure.attention_inputs import make_inputs
from tools.measure.side_by_side import Contender, Run

PASSES = ("forward", "backward")
KINDS: dict[str, Callable[..., Problem]] = {"forward": Problem, "backward": BackwardProblem}
LENGTH = 24


class StubTimer:
    """The first contender takes 1 ms, the second 2 ms, and so on."""

    def measure(self, runs: Mapping[int, Run], rounds: int) -> tuple[dict[int, Timing], dict[int, Timing]]:
        times = {number: Timing.of([number + 1.0] * rounds) for number in runs}
        return times, times

    def power(self, run: Run, ms: float) -> tuple[float, float]:
        return 100.0, 1500.0


def rungs(problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
    """The dense rung; or for a feature, a rung that is right and one that is wrong in the second head."""
    operation = operation_of(problem)
    expected = operation.reference(problem, inputs).outputs
    right = [expected[one.name].to(torch_dtypes()[one.dtype]) for one in operation.outputs(problem)]
    wrong = [one.clone() for one in right]
    wrong[0][:, 1] += 0.5
    if not problem.features:
        yield options.DENSE[problem.operation], "", lambda: lambda: right
    else:
        yield "right", "", lambda: lambda: right
        yield "wrong", "", lambda: lambda: wrong


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[..., options.Comparison]:
    monkeypatch.setattr(options, "LENGTH", LENGTH)
    monkeypatch.setattr(options, "LENGTHS", (30, 9, 9))

    def compared(name: str, window: tuple[int, int] | None) -> options.Comparison:
        return options.comparison(KINDS[name](2, 3, LENGTH, LENGTH, 32, dtype="bf16"), window)

    return compared


def test_every_rung_is_beside_the_dense_one() -> None:
    names, stages, found = options.default_rungs(), discover(), set()
    for one in options.comparisons(PASSES):
        suited = [[name for name in names if stages[name].suits(p)] for p in (one.dense, *one.others)]
        assert suited[0] == [options.DENSE[one.dense.operation]]
        assert all(suited[1:]) and not set(suited[0]) & set().union(*suited[1:])
        assert {other.window for other in one.others[1:]} <= {one.others[1].window}
        assert one.dense.is_causal == ((one.others[1].window or (0, 1))[1] == 0)
        found.update(*suited)
    assert found == set(names)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("window", [None, (-1, 0), (5, 0)])
def test_inputs_are_those_of_the_package_in_other_values(
    small: Callable[..., options.Comparison], name: str, window: tuple[int, int] | None
) -> None:
    compared = small(name, window)
    for problem in (compared.dense, *compared.others):
        found, usual = make_inputs(problem, "cpu"), operation_of(problem).make_inputs(problem)
        assert found.keys() == usual.keys()
        for key, tensor in found.items():
            assert (tensor is None) == (usual[key] is None), key
            if tensor is not None:
                assert (tensor.shape, tensor.dtype) == (usual[key].shape, usual[key].dtype), key


def test_gradients_get_the_o_and_lse_of_their_own_inputs() -> None:
    problem = BackwardProblem(1, 2, 20, 20, 32, dtype="bf16", window=(5, 0), softcap=2.0, sinks=True)
    inputs = make_inputs(problem, "cpu")
    forward = Problem(1, 2, 20, 20, 32, dtype="bf16", window=(5, 0), softcap=2.0, sinks=True)
    expected = operation_of(forward).reference(forward, inputs).outputs
    assert torch.equal(inputs["o"], expected["o"].bfloat16())  # type: ignore[arg-type]
    assert torch.equal(inputs["lse"], expected["lse"].float())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("window", [None, (-1, 0), (5, 0)])
def test_wrong_outputs_are_found_and_speeds_are_relative_to_the_dense_rung(
    small: Callable[..., options.Comparison], name: str, window: tuple[int, int] | None
) -> None:
    compared = small(name, window)
    rows = options.rows_of(compared, rungs, StubTimer(), 3, "cpu")  # type: ignore[arg-type]
    passed = {row["contender"]: row["passed"] for row in rows}
    assert passed == {options.DENSE[compared.dense.operation]: True, "right": True, "wrong": False}
    assert [row["passed"] for row in rows] == [True, *(row["contender"] == "right" for row in rows[1:])]
    assert len(rows) == 1 + 2 * len(compared.others)
    for number, row in enumerate(rows):
        assert row["pass"] == name
        assert row["of_dense"] == pytest.approx(row["tflops_burst"] / rows[0]["tflops_burst"])
        assert row["burst_median_ms"] == number + 1
    assert rows[1]["of_dense"] == pytest.approx(compared.others[0].flops / compared.dense.flops / 2)
