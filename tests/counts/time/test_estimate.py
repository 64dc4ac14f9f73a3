"""The model of time: what it depends on, and where it has no answer."""

from dataclasses import replace
from pathlib import Path

import pytest

from ladder.cli import main
from ladder.counts.time import estimate_stage, load_gpu
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.stages import discover

H200 = load_gpu("h200")
SMALL = Problem(1, 1, 64, 96, 64, dtype="f16")


def test_the_parameters_are_those_of_the_model():
    named = (Path(__file__).parents[3] / "emulator/timing/parameters.def").read_text()
    for gpu in ("h100", "h200"):
        model = load_gpu(gpu).model
        assert all(f"PARAMETER({name})" in named for name in model)
        assert named.count("PARAMETER(") == len(model) + 1  # the problem gives dram_share
        assert len(model) <= 30


def test_a_rung_in_simulated_time():
    stage = discover()["v3_swizzle"]
    first = estimate_stage(stage, SMALL, H200)
    assert estimate_stage(stage, SMALL, H200).launches == first.launches
    (launch,) = first.launches
    # As ptxas has it, and as Nsight Compute shows it in results/h200/bounds.csv.
    assert launch.registers == 127 and launch.resident == 1
    assert sum(first.reasons().values()) == pytest.approx(1)
    assert {"selected", "wait", "long_scoreboard"} <= first.reasons().keys()
    assert first.interval_ms[0] < first.ms < first.interval_ms[1]
    # Half the clock, twice the time; what warps wait for takes longer, the kernel takes longer.
    assert estimate_stage(stage, SMALL, H200, clock_mhz=990).ms == pytest.approx(2 * first.ms)
    slower = {"l2_latency": 10 * H200.model["l2_latency"]}
    assert estimate_stage(stage, SMALL, H200, changes=slower).ms > 1.5 * first.ms


def test_conflicts_take_time():
    stages = discover()
    long = replace(SMALL, kv_len=768)
    with_conflicts, without = (
        estimate_stage(stages[name], long, H200).ms for name in ("v2_warp_mma", "v3_swizzle")
    )
    assert with_conflicts > 1.5 * without


def test_no_number_without_parameters(capsys):
    with pytest.raises(LadderError, match="its file has no parameters of the model"):
        estimate_stage(discover()["v3_swizzle"], SMALL, load_gpu("l4"))
    with pytest.raises(LadderError, match="the model has no parameter 'speed_of_light'"):
        estimate_stage(discover()["v3_swizzle"], SMALL, H200, changes={"speed_of_light": 1})
    for words, message in (
        (["--what-if", "l2_latency=1"], "--what-if is for estimates"),
        (["--experimental", "--what-if", "l2_latency=fast"], "'fast' is no number"),
        (["--experimental", "--what-if", "l2_latency=-1"], "must be positive"),
    ):
        assert main(["time", "v3_swizzle", "--gpu", "h200", *words]) == 2
        assert message in capsys.readouterr().err
