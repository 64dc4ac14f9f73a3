"""Timing on a GPU, with a fake clock in its place; and how a comparison shows the times."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
import torch
from rich.console import Console
from rungs import named

from ladder.operations import Problem, Tensors, get_operation
from ladder.run.backends import Timing, timing
from ladder.run.evaluation import Comparison, make_row
from ladder.show.render import comparison_table
from ladder.stages import discover


def test_median_and_spread() -> None:
    timed = Timing.of([3.0, 1.0, 2.0, 5.0, 4.0])
    assert (timed.median_ms, timed.runs) == (3.0, 5)
    assert (timed.p10_ms, timed.p90_ms) == pytest.approx((1.4, 4.6))
    assert timed.tflops(6e9) == 2.0


def test_contenders_take_turns_and_inputs_rotate(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []

    def times_ms(run: timing.Run, inputs: Sequence[int]) -> list[float]:
        calls.extend((run(one), one) for one in inputs)  # type: ignore[arg-type, misc]
        return [1.0 if calls[-1][0] == "fast" else 100.0] * len(inputs)

    monkeypatch.setattr(timing, "times_ms", times_ms)
    runs = {"fast": lambda inputs: "fast", "slow": lambda inputs: "slow"}
    timings = timing.measure(runs, [0, 1, 2, 3], seconds=0.05)  # type: ignore[list-item]
    assert timings["fast"].median_ms == 1.0 and timings["slow"].median_ms == 100.0
    # 50 ms in five rounds: ten launches of 1 ms in each, and never fewer than two.
    assert (timings["fast"].runs, timings["slow"].runs) == (50, 10)
    names = [name for name, _ in calls[6:]]
    rounds = [names[i : i + 12] for i in range(0, 60, 12)]
    fast, slow = ["fast"] * 10, ["slow"] * 2
    assert all(measured in (fast + slow, slow + fast) for measured in rounds)
    assert [inputs for name, inputs in calls[6:] if name == "fast"][:5] == [0, 1, 2, 3, 0]


def test_every_round_has_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def times_ms(run: timing.Run, inputs: Sequence[Tensors]) -> list[float]:
        calls.extend(run(one) for one in inputs)
        return [1e3] * len(inputs)

    monkeypatch.setattr(timing, "times_ms", times_ms)
    contenders = [f"contender {i}" for i in range(20)]
    timing.measure({name: lambda inputs, name=name: name for name in contenders}, [{}], seconds=0)  # type: ignore[misc]
    measured = calls[len(contenders) :: 2]
    rounds = [measured[i : i + 20] for i in range(0, 100, 20)]
    assert all(set(names) == set(contenders) for names in rounds)
    # Two of five shuffles of twenty are alike once in 10^17 runs.
    assert len({tuple(names) for names in rounds}) == 5


class FakeGpu:
    """A GPU whose launches take 1 ms, and a host that needs ``host_ms`` for each; both count from 0 ms."""

    CYCLES_A_MS = 2e6

    def __init__(self, host_ms: float) -> None:
        self.host_ms, self.host, self.gpu, self.slept = host_ms, 0.0, 0.0, 0

    def sleep(self, cycles: int) -> None:
        self.slept += 1
        self.gpu = max(self.gpu, self.host) + cycles / self.CYCLES_A_MS

    def run(self, inputs: Tensors) -> None:
        self.host += self.host_ms
        self.gpu = max(self.gpu, self.host) + 1.0

    def event(self, enable_timing: bool) -> FakeGpu.Event:
        return self.Event(self)

    class Event:
        def __init__(self, gpu: FakeGpu) -> None:
            self.of = gpu

        def record(self) -> None:
            self.at = self.of.gpu

        def query(self) -> bool:
            return self.at <= self.of.host

        def synchronize(self) -> None:
            self.of.host = max(self.of.host, self.of.gpu)

        def elapsed_time(self, end: FakeGpu.Event) -> float:
            return end.at - self.at


@pytest.mark.parametrize(("host_ms", "tries"), [(0.01, 1), (2.0, 3)])
def test_the_time_of_the_host_is_not_timed(
    host_ms: float, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeGpu(host_ms)
    monkeypatch.setattr(torch.cuda, "_sleep", fake.sleep)
    monkeypatch.setattr(torch.cuda, "Event", fake.event)
    assert timing.times_ms(fake.run, [{}] * 10) == pytest.approx([1.0] * 10)
    assert fake.slept == tries


@pytest.mark.parametrize(("l2_bytes", "sets"), [(0, 2), (3 * 4 * 64 * 4, 8), (1 << 40, 64)])
def test_inputs_exceed_the_l2(l2_bytes: int, sets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = type("Properties", (), {"L2_cache_size": l2_bytes})()
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    problem = Problem(1, 1, 16, 16, 4)
    first = {name: torch.randn(1, 1, 16, 4) for name in "qkv"}
    found = timing.input_sets(problem, first)
    assert len(found) == sets and found[0] is first
    assert len({inputs["q"].data_ptr() for inputs in found}) == sets
    assert all(torch.equal(inputs["q"], first["q"].roll(i, 2)) for i, inputs in enumerate(found))


def test_a_comparison_on_a_gpu_shows_shares_and_spread() -> None:
    problem = Problem(4, 16, 1024, 1024, 64, dtype="f16")
    row = make_row(named("v3"), "cuda", "sm_90", problem) | {"passed": True, "time_ms": 0.5, "tflops": 100.0}
    compared = Comparison(
        get_operation("attention"),
        [row],
        timings={named("v3"): Timing(0.5, 0.49, 0.52, 100)},
        baselines={"f16": {"torch matmul": 800.0, "torch flash": 200.0}},
    )
    text = io.StringIO()
    Console(file=text, width=100).print(comparison_table(compared, discover()))
    shown = text.getvalue()
    assert "0.490-0.520" in shown
    assert [line.split()[-1] for line in shown.splitlines() if " of torch" in line] == ["0.12", "0.50"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_comparison_on_the_gpu() -> None:
    from ladder.run.evaluation import run_comparison

    compared = run_comparison(Problem(1, 4, 512, 512, 64, dtype="f16"), [named("v3")], backend="cuda")
    timed = compared.timings[named("v3")]
    assert 0 < timed.p10_ms <= timed.median_ms <= timed.p90_ms
    assert compared.rows[0]["time_ms"] == timed.median_ms
    assert {"torch matmul", "torch flash"} <= set(compared.baselines["f16"])
