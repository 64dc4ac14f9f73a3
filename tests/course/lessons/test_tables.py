"""Tables of the lessons."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import torch

from ladder.course import lessons
from ladder.operations import Problem
from ladder.stages import of_today


def test_counts_and_costs_of_a_rung() -> None:
    import ladder

    problem = Problem(1, 1, 64, 64, 32)
    table = ladder.compare(problem, ["v2_warp_mma", "v3_swizzle"], backend="emulator")
    shown = lessons.counts(table)
    assert list(shown.columns) == ["v2_warp_mma", "v3_swizzle"]
    assert list(shown.loc["bank conflicts"]) == [f"{value:,}" for value in table["conflicts"]]
    assert shown.loc["bank conflicts", "v3_swizzle"] == "0" and "time, ms" not in shown.index

    lines = lessons.costs("v2_warp_mma", problem, count=3).data
    assert len(lines) == 4 and lines["source"].iloc[-1] == "all other lines"
    number = lessons.line_of("v2_warp_mma", "ldmatrix_x4_trans(v_rmem")
    assert lines.loc[str(number), "source"].startswith("ldmatrix_x4_trans(v_rmem")
    # The rows add up to the whole kernel's counts.
    whole = table.set_index("stage").loc["v2_warp_mma"]
    added = {
        name: sum(int(text.replace(",", "")) for text in lines[name]) for name in ("wavefronts", "conflicts")
    }
    assert added["wavefronts"] == whole["wavefronts_ld"] + whole["wavefronts_st"]
    assert added["conflicts"] == whole["conflicts"]


def test_what_was_measured() -> None:
    table = lessons.measured(["v4_tk_tiles", "v7_wgmma", "v12_order", "torch cuDNN"])
    assert list(table.columns) == ["d = 64", "d = 64, causal", "d = 128", "d = 128, causal"]
    speed = of_today(pd.read_csv(Path(__file__).parents[3] / "results" / "h200" / "speed.csv"), "contender")
    for name in table.index:
        same = speed[(speed.contender == name) & (speed.N == 4096) & (speed.dtype == "bf16")]
        figures = {(row.d, str(row.causal)): f"{row.tflops:.0f}" for row in same.itertuples()}
        assert list(table.loc[name]) == [figures[d, c] for d in (64, 128) for c in ("False", "True")]


def test_what_was_measured_of_the_other_ladders() -> None:
    results = Path(__file__).parents[3] / "results" / "h200"
    gradients = lessons.measured(["b1_two_kernels"], "attention_backward", length=1024)
    rows = pd.read_csv(results / "backward.csv")
    here = (rows.contender == "b1_two_kernels") & (rows.N == 1024) & (rows.d == 64)
    causal = rows[here & (rows.causal.astype(str) == "True")]
    assert gradients.loc["b1_two_kernels", "d = 64, causal"] == f"{causal.tflops.median():.0f}"

    hstu = lessons.measured_hstu(["h6_wgmma", "h1_silu"])
    assert list(hstu.columns) == ["h6_wgmma", "h1_silu"]
    assert "4 x 4096 d64 causal contexts 3 targets 256 by 1" in hstu.index
    rows = pd.read_csv(results / "hstu.csv")
    here = rows[(rows.contender == "h6_wgmma") & (rows.d == 256)]
    assert hstu.loc["4 x 4096 d256 causal", "h6_wgmma"] == f"{here.tflops.item():.0f}"


def test_what_was_measured_beside_other_implementations_of_hstu() -> None:
    rows = pd.read_csv(Path(__file__).parents[3] / "results" / "h100" / "hstu_peers.csv")
    for name, rung, problems in (("forward", "h6b_store", 8), ("backward", "h8_wgmma_gradients", 8)):
        table = lessons.measured_hstu_peers([rung, "generative-recommenders"], name)
        assert list(table.columns) == [rung, "generative-recommenders"] and len(table) == problems
        here = rows[(rows.contender == rung) & (rows["pass"] == name)]
        assert list(table[rung]) == [f"{speed:.0f}" for speed in here.tflops_burst]
    table = lessons.measured_hstu_peers(["h7_tile_scheduler", "generative-recommenders"])
    assert table.loc["8 x 2048 d64 causal targets 1024 by 16", "generative-recommenders"] == ""


def test_how_busy_the_units_were() -> None:
    table = lessons.busy(["v9_roles", "v10_pingpong"], length=1024, head_dim=64)
    rows = pd.read_csv(Path(__file__).parents[3] / "results" / "h200" / "bounds.csv").set_index("stage")
    here = rows[(rows.N == 1024) & (rows.d == 64)].loc["v10_pingpong"]
    resident = here["sm__warps_active.avg.pct_of_peak_sustained_active"]
    assert list(table.columns) == ["v9_roles", "v10_pingpong"]
    assert table.loc["warps resident", "v10_pingpong"] == f"{resident:.0f}%"


def test_the_recorded_steps_are_drawn() -> None:
    for figure, first in ((lessons.turns(), "v9_roles"), (lessons.timeline(), "v9_roles")):
        assert [axes.get_title(loc="left") for axes in figure.axes] == [first, "v10b_overlap"]


def test_times_are_a_gpus_alone(monkeypatch) -> None:
    import ladder

    if not torch.cuda.is_available():
        assert "claims no times" in str(lessons.times())
    table = ladder.compare(Problem(1, 1, 64, 64, 32), ["v2_warp_mma"], backend="emulator")
    monkeypatch.setattr("ladder.run.backends.choice.get_backend", lambda name: SimpleNamespace(times=True))
    monkeypatch.setattr(
        "ladder.run.evaluation.comparison.compare",
        lambda problem, stages: table[table["stage"].isin(stages)].assign(time_ms=0.25, tflops=12.345),
    )
    shown = lessons.times(["v2_warp_mma"])
    assert list(shown.columns) == ["v2_warp_mma"]
    assert list(shown.loc["time, ms"]) == ["0.25"] and list(shown.loc["TFLOP/s"]) == ["12.3"]
