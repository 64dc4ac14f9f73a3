"""How a run travels to the GPU's process and back, with a function in the place of the GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ladder.common.isolation import ProcessEnded
from ladder.compile import CudaTarget
from ladder.errors import ExecutionError
from ladder.operations import HstuProblem, Problem, operation_of
from ladder.run.backends import cuda

PROBLEM = Problem(1, 2, 5, 7, 32, dtype="f16")
STRIDED = HstuProblem(2, 32, (9, 3), dtype="f16", inputs="strided")

Stage = Callable[[Any, dict[str, torch.Tensor | None]], None]


class Here:
    """Answers questions in this process, by way of JSON."""

    is_alive = True

    def __init__(self, answered: Callable[[Any], Any] = lambda answer: answer) -> None:
        self._answered = answered

    def ask(self, function: Any, *arguments: Any, descriptors: Sequence[int], seconds: float) -> Any:
        return self._answered(json.loads(json.dumps(function(*arguments, *descriptors))))

    def close(self) -> None: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``run(stage, problem, child)``: a run of the CUDA backend's runner on CPU tensors."""

    def run(stage: Stage, problem: Any, child: Here | None = None, **choices: bool) -> Any:
        monkeypatch.setattr(cuda, "call", lambda extension, problem, tensors, stream: stage(problem, tensors))
        monkeypatch.setattr(cuda, "_stream", lambda: 0)
        monkeypatch.setattr(
            cuda, "_timing", lambda *_: SimpleNamespace(median_ms=1.0, p10_ms=0.5, p90_ms=2.0, runs=3)
        )
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        runner = cuda.CudaRunner(Path("none"), CudaTarget("sm_90"))
        runner._child = child or Here()  # type: ignore[assignment]
        return runner.run(problem, operation_of(problem).make_inputs(problem), **choices)

    return run


def right(problem: Any, tensors: dict[str, torch.Tensor | None]) -> None:
    operation = operation_of(problem)
    names = {one.name for one in operation.outputs(problem)}
    reference = operation.reference(problem, {n: x for n, x in tensors.items() if n not in names})
    for name, exact in reference.outputs.items():
        output = tensors[name]
        assert output is not None
        output.copy_(exact)


@pytest.mark.parametrize("problem", [PROBLEM, STRIDED], ids=str)
def test_outputs_come_back(run: Callable[..., Any], problem: Any) -> None:
    execution = run(right, problem, timed=True)
    expected = operation_of(problem).reference(problem, operation_of(problem).make_inputs(problem))
    assert expected.passed(expected.errors(execution.outputs)) and execution.time_ms == 1.0


def test_what_a_stage_must_not_write_is_looked_at(run: Callable[..., Any]) -> None:
    def writes_k(problem: Any, tensors: dict[str, torch.Tensor | None]) -> None:
        right(problem, tensors)
        assert tensors["k"] is not None
        tensors["k"][0, 0, 0, 0] += 1

    def writes_on(problem: Any, tensors: dict[str, torch.Tensor | None]) -> None:
        right(problem, tensors)
        o = tensors["o"]
        assert o is not None
        o.as_strided((1,), (1,), o.storage_offset() + o.numel()).fill_(0)

    with pytest.raises(ExecutionError, match="it writes to k, which it is only given to read"):
        run(writes_k, PROBLEM)
    with pytest.raises(ExecutionError, match="it writes past the ends of o"):
        run(writes_on, PROBLEM)


def test_another_answer_than_a_timing_is_none(run: Callable[..., Any]) -> None:
    for other in ({"seconds": 1}, [], None):
        with pytest.raises(ProcessEnded, match="not what came of a run"):
            run(right, PROBLEM, Here(lambda answer, other=other: other), timed=True)
