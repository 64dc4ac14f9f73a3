"""What measurements beside other implementations share (side_by_side.py), with stubs of a GPU."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from ladder.errors import LadderError
from ladder.operations import Problem, operation_of
from ladder.run.backends.timing import Timing
from tools.measure import side_by_side
from tools.measure.side_by_side import Checker, Contender, Run, measure_each, measured, of_function, watts

PROBLEM = Problem(1, 2, 48, 48, 32, dtype="bf16", is_causal=True)
INPUTS = operation_of(PROBLEM).make_inputs(PROBLEM)


class StubTimer:
    """Takes 2 ms in a burst and 4 ms alone, and 100 W."""

    def measure(self, runs: Mapping[str, Run], rounds: int) -> tuple[dict[str, Timing], dict[str, Timing]]:
        return (
            {name: Timing.of([2.0] * rounds) for name in runs},
            {name: Timing.of([4.0] * rounds) for name in runs},
        )

    def power(self, run: Run, ms: float) -> tuple[float, float]:
        return 100.0, 1500.0


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    o = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True)
    return o.to(q.dtype)


def contenders(problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
    yield "right", "1.0", lambda: of_function(attend, problem, inputs)
    yield "wrong", "", lambda: of_function(lambda q, k, v: 1.1 * attend(q, k, v), problem, inputs)
    yield "broken", "", lambda: of_function(lambda q, k, v: 1 // 0 * q, problem, inputs)


def rows_of(problem: Problem) -> list[dict[str, Any]]:
    checker = Checker(problem, INPUTS)
    return measured(problem, INPUTS, [contenders], checker, StubTimer(), 5)  # type: ignore[arg-type]


def test_power_is_measured_between_changes_of_the_counter() -> None:
    """The counter changes at 0.1, 0.2 and 0.3 s, by 60 J each time; it is read at other times, too."""
    read = [
        (0.00, 10.0),
        (0.05, 10.0),
        (0.10, 70.0),
        (0.15, 70.0),
        (0.20, 130.0),
        (0.30, 190.0),
        (0.35, 190.0),
    ]
    assert watts(read) == pytest.approx(120 / 0.2)
    assert math.isnan(watts(read[:4])) and math.isnan(watts([]))


def test_nan_is_an_error() -> None:
    [o] = of_function(attend, PROBLEM, INPUTS)()
    assert Checker(PROBLEM, INPUTS).error([o]) <= 1
    o[0, 0, 0, 0] = math.nan
    assert math.isnan(Checker(PROBLEM, INPUTS).error([o]))
    assert Checker(PROBLEM, INPUTS, left_out=("o",)).error([o]) == 0


def test_rows_have_speeds_of_both_times_and_say_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = rows_of(PROBLEM)
    assert (right["contender"], right["version"], right["pass"]) == ("right", "1.0", "forward")
    assert (right["N"], right["dtype"], right["burst_runs"]) == (48, "bf16", 5)
    assert right["tflops_burst"] == pytest.approx(PROBLEM.flops / 2e9)
    assert right["tflops_single"] == pytest.approx(PROBLEM.flops / 4e9)
    assert right["tflops_per_watt"] == right["tflops_burst"] / 100
    assert right["passed"] and right["error"] <= 1
    assert wrong["contender"] == "wrong" and not wrong["passed"]
    assert capsys.readouterr().err == f"{PROBLEM}: broken: integer division or modulo by zero\n"


def test_a_contender_that_makes_the_gpu_unusable_ends_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def synchronize() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nFor debugging consider")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    message = rf"after broken on {re.escape(str(PROBLEM))} .* any more: CUDA error: an illegal memory access"
    with pytest.raises(LadderError, match=message):
        rows_of(PROBLEM)


def test_the_table_has_each_problem_as_soon_as_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(side_by_side, "measured_on", lambda: {"gpu": "none"})
    out, written = tmp_path / "new" / "table.csv", []

    def rows(problem: Problem) -> Sequence[Mapping[str, Any]]:
        written.append(len(pd.read_csv(out)) if out.is_file() else 0)
        return rows_of(problem)

    now = time.monotonic()
    assert not measure_each([PROBLEM, PROBLEM], rows, out, now, 60.0)  # type: ignore[arg-type]
    assert written == [0, 2]
    assert [*pd.read_csv(out).gpu] == ["none"] * 4
    capsys.readouterr()
    assert measure_each([PROBLEM], rows, out, now - 100, 60.0)  # type: ignore[arg-type]
    assert len(written) == 2
    assert capsys.readouterr().err == f"{PROBLEM} is left out: the time is over\n"
