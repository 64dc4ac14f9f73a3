"""Tables of the lessons."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import torch
from rungs import named

from ladder.course import lessons
from ladder.operations import Problem
from ladder.stages import of_today


def test_counts_and_costs_of_a_rung() -> None:
    import ladder

    problem = Problem(1, 1, 64, 64, 32)
    table = ladder.compare(problem, [named("v2"), named("v3")], backend="emulator")
    shown = lessons.counts(table)
    assert list(shown.columns) == [named("v2"), named("v3")]
    assert list(shown.loc["bank conflicts"]) == [f"{value:,}" for value in table["conflicts"]]
    assert shown.loc["bank conflicts", named("v3")] == "0" and "time, ms" not in shown.index

    lines = lessons.costs(named("v2"), problem, count=3).data
    assert len(lines) == 4 and lines["source"].iloc[-1] == "all other lines"
    number = lessons.line_of("v2", "ldmatrix_x4_trans(v_rmem")
    assert lines.loc[str(number), "source"].startswith("ldmatrix_x4_trans(v_rmem")
    # The rows add up to the whole kernel's counts.
    whole = table.set_index("stage").loc[named("v2")]
    added = {
        name: sum(int(text.replace(",", "")) for text in lines[name]) for name in ("wavefronts", "conflicts")
    }
    assert added["wavefronts"] == whole["wavefronts_ld"] + whole["wavefronts_st"]
    assert added["conflicts"] == whole["conflicts"]


def test_what_was_measured() -> None:
    table = lessons.measured([named("v4"), named("v7"), named("v12"), "torch cuDNN"])
    assert list(table.columns) == ["d = 64", "d = 64, causal", "d = 128", "d = 128, causal"]
    speed = of_today(pd.read_csv(Path(__file__).parents[3] / "results" / "h200" / "speed.csv"), "contender")
    for name in table.index:
        same = speed[(speed.contender == name) & (speed.N == 4096) & (speed.dtype == "bf16")]
        figures = {(row.d, str(row.causal)): f"{row.tflops:.0f}" for row in same.itertuples()}
        assert list(table.loc[name]) == [figures[d, c] for d in (64, 128) for c in ("False", "True")]


def test_what_was_measured_of_the_other_ladders() -> None:
    results = Path(__file__).parents[3] / "results" / "h200"
    gradients = lessons.measured([named("b1")], "attention_backward", length=1024)
    rows = pd.read_csv(results / "backward.csv")
    here = (rows.contender == named("b1")) & (rows.N == 1024) & (rows.d == 64)
    causal = rows[here & (rows.causal.astype(str) == "True")]
    assert gradients.loc[named("b1"), "d = 64, causal"] == f"{causal.tflops.median():.0f}"

    hstu = lessons.measured_hstu([named("h6"), named("h1")])
    assert list(hstu.columns) == [named("h6"), named("h1")]
    assert "4 x 4096 d64 causal contexts 3 targets 256 by 1" in hstu.index
    rows = pd.read_csv(results / "hstu.csv")
    here = rows[(rows.contender == named("h6")) & (rows.d == 256)]
    assert hstu.loc["4 x 4096 d256 causal", named("h6")] == f"{here.tflops.item():.0f}"


def test_what_was_measured_beside_other_implementations_of_hstu() -> None:
    rows = pd.read_csv(Path(__file__).parents[3] / "results" / "h100" / "hstu_peers.csv")
    for name, rung, problems in (("forward", named("h6b"), 8), ("backward", named("h8"), 8)):
        table = lessons.measured_hstu_peers([rung, "generative-recommenders"], name)
        assert list(table.columns) == [rung, "generative-recommenders"] and len(table) == problems
        here = rows[(rows.contender == rung) & (rows["pass"] == name)]
        assert list(table[rung]) == [f"{speed:.0f}" for speed in here.tflops_burst]
    table = lessons.measured_hstu_peers([named("h7"), "generative-recommenders"])
    assert table.loc["8 x 2048 d64 causal targets 1024 by 16", "generative-recommenders"] == ""


def test_how_busy_the_units_were() -> None:
    table = lessons.busy([named("v9"), named("v10")], length=1024, head_dim=64)
    rows = pd.read_csv(Path(__file__).parents[3] / "results" / "h200" / "bounds.csv").set_index("stage")
    here = rows[(rows.N == 1024) & (rows.d == 64)].loc[named("v10")]
    resident = here["sm__warps_active.avg.pct_of_peak_sustained_active"]
    assert list(table.columns) == [named("v9"), named("v10")]
    assert table.loc["warps resident", named("v10")] == f"{resident:.0f}%"


def test_the_recorded_steps_are_drawn() -> None:
    for figure, first in ((lessons.turns(), named("v9")), (lessons.timeline(), named("v9"))):
        assert [axes.get_title(loc="left") for axes in figure.axes] == [first, named("v10b")]


def test_times_are_a_gpus_alone(monkeypatch) -> None:
    import ladder

    if not torch.cuda.is_available():
        assert "claims no times" in str(lessons.times())
    table = ladder.compare(Problem(1, 1, 64, 64, 32), [named("v2")], backend="emulator")
    monkeypatch.setattr("ladder.run.backends.choice.get_backend", lambda name: SimpleNamespace(times=True))
    monkeypatch.setattr(
        "ladder.run.evaluation.comparison.compare",
        lambda problem, stages: table[table["stage"].isin(stages)].assign(time_ms=0.25, tflops=12.345),
    )
    shown = lessons.times([named("v2")])
    assert list(shown.columns) == [named("v2")]
    assert list(shown.loc["time, ms"]) == ["0.25"] and list(shown.loc["TFLOP/s"]) == ["12.3"]
