"""The benchmark of a GPU, on a stand-in for one: which builds it needs, and what is left of a stopped run."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rungs import named

from ladder.operations import AnyProblem, Problem, operation_of
from ladder.run.backends import Timing
from ladder.stages import Stage, discover
from tools.bench import gpu

ROOT = Path(__file__).parents[3]
SMALL = Problem(1, 1, 64, 64, 64, dtype="bf16")
LARGE = Problem(1, 1, 64, 64, 128, dtype="bf16")


class StandIn:
    """Builds and measures nothing. ``ends_after`` problems comes Ctrl-C."""

    def __init__(self) -> None:
        self.built: dict[str, Mapping[str, object]] = {}
        self.measured: dict[AnyProblem, list[str]] = {}
        self.ends_after = 1000

    def build_all(
        self, stages: Sequence[Stage], targets: object, options: Mapping[str, Mapping[str, object]]
    ) -> dict[str, None]:
        self.built |= {stage.name: options[stage.name] for stage in stages}
        return dict.fromkeys(stage.name for stage in stages)

    def measure(
        self,
        problem: AnyProblem,
        _: object,
        runs: Mapping[str, object],
        calls: Mapping[str, object],
        tflops: float,
    ) -> list[dict[str, Any]]:
        if len(self.measured) == self.ends_after:
            raise KeyboardInterrupt
        self.measured[problem] = [*runs]
        row = operation_of(problem).row(problem)
        return [{"contender": name, **row, "runs": 1, "passed": True} for name in runs]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(gpu, "get_backend", lambda _: SimpleNamespace(target=lambda stage, arch: None))
    monkeypatch.setattr(gpu, "build_all", made.build_all)
    monkeypatch.setattr(gpu, "measured_on", lambda: {"gpu": "a GPU"})
    monkeypatch.setattr(gpu.timing, "matmul", lambda: Timing.of([1.0]))
    monkeypatch.setattr(gpu, "_inputs", lambda problem: {})
    monkeypatch.setattr(gpu, "_takes", lambda stage, run, problem, inputs: stage.suits(problem))
    monkeypatch.setattr(gpu, "_measure_problem", made.measure)
    return made


def test_only_what_the_problems_need_is_built(stand_in: StandIn) -> None:
    rows = gpu.measure([SMALL, LARGE], [named("v1"), named("v5"), named("v8")])
    needed = {"LADDER_HEAD_DIMS": 64 + 128, "LADDER_DTYPES": 1 << 2}
    assert stand_in.built == {named("v5"): needed, named("v8"): needed}
    assert rows.contender.tolist() == [gpu.MATMUL, *[named("v5"), named("v8")] * 2]
    assert rows.d.tolist()[1:] == [64, 64, 128, 128] and set(rows.gpu) == {"a GPU"}


def test_a_stopped_run_keeps_what_it_has(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.ends_after = 1
    options = SimpleNamespace(
        stages=[named("v5")],
        problem=["1,1,64,64,64", "1,1,64,64,128"],
        dtype="bf16",
        causal=False,
        called=False,
    )
    with pytest.raises(KeyboardInterrupt):
        gpu.main(SimpleNamespace(**vars(options), out=tmp_path / "speed.csv"))  # type: ignore[arg-type]
    assert pd.read_csv(tmp_path / "speed.csv").contender.tolist() == [gpu.MATMUL, named("v5")]


def test_all_steps_are_measured_in_one_run(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main: Callable[[], int] = runpy.run_module("tools.measure.measure_steps")["main"]
    monkeypatch.setattr("sys.argv", ["measure_steps.py", "--out", str(tmp_path)])
    assert main() == 0
    computed = ("attention", "attention_backward", "hstu")
    own = [stage for stage in discover() if stage.is_own and not stage.is_variant]
    rungs = {named("h3"), named("h7d")} | {stage.name for stage in own if stage.computes in computed}
    names = ("speed.csv", "backward.csv", "hstu.csv")
    found = pd.concat(map(pd.read_csv, [*(tmp_path / name for name in names), tmp_path / "few_queries.csv"]))
    assert set(found.contender) == {gpu.MATMUL, *rungs}
    assert len(found) == 4 + sum(map(len, stand_in.measured.values()))


def test_few_queries_are_measured_alone(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main: Callable[[], int] = runpy.run_module("tools.measure.measure_steps")["main"]
    monkeypatch.setattr("sys.argv", ["measure_steps.py", "--out", str(tmp_path), "few_queries.csv"])
    assert main() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["few_queries.csv"]
    few = pd.read_csv(tmp_path / "few_queries.csv").dropna(subset="N")
    timed = {named("h1"), named("h2"), named("h4"), named("h6")}
    assert set(few.contender) == timed | {named("h5b"), named("h6b"), named("h7")}
    assert set(few.N) == {"/".join([queries] * 8) for queries in ("16", "32")}
    assert set(few.M) == {"/".join(["4096"] * 8)}
