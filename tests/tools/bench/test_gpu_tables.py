"""The tables of what is measured on a GPU: they fit a log, and have a column for calls where these are."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console
from rungs import named

import ladder
from ladder.errors import LadderError
from ladder.operations import BackwardProblem, Problem, get_operation
from tools.bench import calls, gpu, norm_gate

H200 = Path(__file__).parents[3] / "results" / "h200"
#: What each line of a table of calls begins with.
CONTENDERS = ("ladder ", "torch ", "q * k", "launch alone", "launches alone", "autograd alone")


def printed(table: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), color_system=None, force_jupyter=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_calls_fit_80_columns_a_line_each() -> None:
    frame = pd.read_csv(H200 / "calls.csv")
    lines = printed(calls.render(frame), 80)
    assert max(map(len, lines)) <= 80
    groups = frame.groupby(["problem", "pass"]).ngroups
    named = [line for line in lines if line.strip().startswith(CONTENDERS)]
    assert len(named) == len(frame) and sum(", forward" in line for line in lines) == groups


def test_a_column_for_the_speed_through_calls() -> None:
    frame = pd.read_csv(H200.parent / "h100/softcap.csv").head(6)
    called = frame.assign(called_tflops=[None, 450.5, *[None] * 4])
    without, lines = (printed(gpu.render(one, get_operation("attention")), 140) for one in (frame, called))
    assert not any("called" in line for line in without)
    [row] = [line for line in lines if "450.5" in line]
    assert named("v12c") in row and any("called" in line for line in lines)


@pytest.mark.parametrize(
    "problem",
    [BackwardProblem(1, 1, 16, 16, 64), Problem(2, 1, 9, 9, 64, q_lens=(9, 3), kv_lens=(9, 3))],
)
def test_what_has_no_call_is_refused(problem: Problem) -> None:
    with pytest.raises(LadderError, match=r"only rungs of attention on batches"):
        gpu._call("v3", problem)


def test_a_call_has_the_arguments_of_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []

    def attention(*tensors: torch.Tensor, **arguments: object) -> tuple[torch.Tensor, None]:
        given.append(arguments)
        return tensors[0], None

    monkeypatch.setattr(gpu.ladder, "attention", attention)
    problem = Problem(1, 4, 16, 16, 64, kv_heads=2, scale=0.5, window=(3, 0), sinks=True)
    sinks = torch.zeros(4)
    inputs = {**dict.fromkeys("qkv", torch.zeros(1)), "sinks": sinks}
    gpu._call("x3", problem)(inputs)
    [arguments] = given
    assert arguments.pop("sinks") is sinks and arguments.pop("options") == {}
    assert arguments == {
        "is_causal": False,
        "scale": 0.5,
        "enable_gqa": True,
        "window_size": (3, 0),
        "softcap": None,
        "stage": named("x3"),
    }


def test_a_layer_norm_and_gate_has_a_row_per_number_of_columns() -> None:
    of_all = {"gpu": "a GPU", "compiler": "nvcc", "torch": "2.11", "date": "2026-01-01", "dtype": "bf16"}
    rows = [
        {**of_all, "cols": cols, "pass": which, "contender": name, "call_us": 123.4, "gb_per_s": 3210.9}
        for which in ("forward", "forward and backward")
        for cols in (512, 2048)
        for name in ("ladder", "torch", "torch fp32", "torch compiled")
    ]
    lines = printed(norm_gate.render(pd.DataFrame(rows)), 80)
    assert [line.split()[0] for line in lines if "123 (3,211)" in line] == ["512", "2,048"] * 2
    assert all(line.count("123 (3,211)") == 4 for line in lines if "2,048" in line)


@pytest.mark.parametrize("with_gradient", [False, True])
def test_a_wrong_layer_norm_and_gate_is_not_measured(
    with_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_cpu = {"with_gradient": with_gradient, "device": "cpu"}
    assert len(norm_gate.calls_of(17, 64, torch.bfloat16, **of_cpu)) == 4
    right = ladder.norm_gate
    monkeypatch.setattr(ladder, "norm_gate", lambda x, gate, *others: right(x, gate * 1.1, *others))
    with pytest.raises(LadderError, match=r"ladder\.norm_gate differs from torch by"):
        norm_gate.calls_of(17, 64, torch.bfloat16, **of_cpu)
