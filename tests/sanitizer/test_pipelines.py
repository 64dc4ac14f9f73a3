"""Random pipelines of TMA, mbarriers and wgmma: those right by construction are clean, a fault is found."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import pytest
from corpus_runs import CORPUS, HOPPER_ARCH

from ladder.compile import EmulatorTarget, build_program
from ladder.run.emulator import ProgramResult, run_program

SOURCE = Path(__file__).parent / "pipelines.cu"
#: What a tile read too early is, by what the producer has done until then: begun its load, written nothing
#: there yet, or not begun the load that then overwrites what was read.
EARLY = {"copy not waited for", "uninitialised read", "race between warps"}
#: The faults of pipelines.cu, in its order, and the kinds of which one must be named.
FAULTS: dict[str, set[str]] = {
    "none": set(),
    "no wait for empty": {"barrier", "copy not waited for", "read not waited for"},
    "no wait for full": EARLY,
    "release before use": {"read not waited for"},
    "one group releases": {"read not waited for", "race between warps", "race between blocks"},
    "more bytes": {"barrier"},
    "fewer bytes": {"barrier"},
    "parity never flips": EARLY | {"barrier"},
    "next stage": EARLY,
    "no proxy fence": {"proxy fence"},
    "no wait for store": {"read not waited for"},
    "no publication": {"race between blocks", "uninitialised read", "fault"},
    "every lane loads": {"election"},
    "one arrival too few": {"barrier"},
}


@dataclass(frozen=True)
class Plan:
    """The choices of pipelines.cu, in its order.

    ``copies`` complete a phase together; ``lag`` groups of products are in flight when a buffer is handed
    back; with ``begin_empty`` the consumers first hand over the free buffers.
    """

    stages: int
    tiles: int
    groups: int
    copies: int
    lag: int
    all_arrive: int
    begin_empty: int
    products: int
    stores: int
    cluster: int
    fault: int = 0

    @property
    def words(self) -> list[str]:
        return [str(value) for value in astuple(self)]


def draw(seed: int) -> Plan:
    """A plan that is right."""
    pick = random.Random(seed).choice
    stages = pick((1, 2, 3, 4))
    return Plan(
        stages=stages,
        tiles=pick(range(stages, 3 * stages + 2)),
        groups=pick((1, 2)),
        copies=pick((2, 4)),
        lag=pick((0, 1)) if stages > 1 else 0,
        all_arrive=pick((0, 1)),
        begin_empty=pick((0, 1)),
        products=pick((0, 1)),
        stores=pick((0, 1)),
        cluster=pick((1, 2)),
    )


def plant(plan: Plan, fault: str) -> Plan:
    """The plan with the fault, and with what it takes to be one."""
    plan = replace(plan, stages=2, tiles=6, fault=list(FAULTS).index(fault))
    needs: dict[str, dict[str, int]] = {
        "release before use": {"products": 1, "lag": 0},
        "one group releases": {"groups": 2},
        "no wait for store": {"stores": 1, "lag": 0},
        "no publication": {"cluster": 2},
        "every lane loads": {"cluster": 1},
    }
    return replace(plan, **needs.get(fault, {}))


@pytest.fixture(scope="module")
def program() -> Path:
    flags = ["-Xcompiler", "-g1", f"-I{CORPUS}"]
    return build_program([SOURCE], EmulatorTarget(HOPPER_ARCH), flags)


def run(program: Path, plan: Plan, check: bool = True) -> ProgramResult:
    return run_program(program, plan.words, HOPPER_ARCH, check=check)


def run_all(program: Path, plans: list[Plan]) -> list[tuple[Plan, ProgramResult]]:
    with ThreadPoolExecutor(2) as pool:
        return list(zip(plans, pool.map(lambda plan: run(program, plan), plans), strict=True))


def unclean(program: Path, seeds: range) -> list[str]:
    return [
        f"{plan}: exit code {result.exit_code}, {result.findings}"
        for plan, result in run_all(program, [draw(seed) for seed in seeds])
        if result.exit_code or result.findings
    ]


def unnoticed(program: Path, seeds: range) -> list[str]:
    faults = [fault for seed in seeds for fault in FAULTS if fault != "none"]
    plans = [plant(draw(seed), fault) for seed in seeds for fault in FAULTS if fault != "none"]
    return [
        f"{fault}: {plan}, {result.findings}"
        for fault, (plan, result) in zip(faults, run_all(program, plans), strict=True)
        if not FAULTS[fault] & {finding.kind for finding in result.findings}
    ]


def test_right_pipelines_are_clean(program: Path) -> None:
    assert unclean(program, range(24)) == []


def test_a_fault_in_a_pipeline_is_found(program: Path) -> None:
    assert unnoticed(program, range(2)) == []


def test_a_pipeline_runs_the_same_again(program: Path) -> None:
    for seed in range(3):
        first, second = (run(program, draw(seed), check=False) for _ in range(2))
        assert first.exit_code == second.exit_code == 0
        assert [launch.counters for launch in first.launches] == [
            launch.counters for launch in second.launches
        ]


@pytest.mark.full
def test_a_thousand_right_pipelines_are_clean(program: Path) -> None:
    assert unclean(program, range(1000, 2000)) == []


@pytest.mark.full
def test_a_thousand_faults_in_pipelines_are_found(program: Path) -> None:
    assert unnoticed(program, range(1000, 1077)) == []
