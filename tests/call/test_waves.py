"""The choice of a rung by the model of waves, beside the table that was measured on an H200."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch
from rungs import named

from ladder.call import runs, waves
from ladder.call.runs import Choice
from ladder.operations import Problem
from ladder.stages import discover, root
from tools.measure.small_grids import fitted, problem_of

KIND = ["B", "H", "Hkv", "N", "d", "causal"]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    path = Path(__file__).parents[2] / "results" / "h200" / "small_grids.csv"
    return pd.read_csv(path)


def slowdowns(table: pd.DataFrame) -> pd.Series:
    """For each problem the time of the chosen rung, as a multiple of the fastest rung's."""
    found = []
    for _, of_problem in table[~table.contender.str.startswith("torch")].groupby(KIND):
        us = dict(zip(of_problem.contender, of_problem.us, strict=True))
        row = next(of_problem.itertuples())
        chosen = waves.fastest(problem_of(row), int(row.sm_count)) or waves.LAST
        found.append(us[named(chosen)] / min(us.values()))
    return pd.Series(found)


def test_the_chosen_rung_is_near_the_fastest(table: pd.DataFrame) -> None:
    """The last rung always: 48 of 110 problems within 2% of the fastest rung, 1.51 times its time at most."""
    found = slowdowns(table)
    assert len(found) == 110
    assert (found <= 1.02).sum() == 95 and (found <= 1.1).sum() == 108 and found.max() < 1.16


def test_costs_fitted_to_one_half_choose_well_in_the_other(
    table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = table.groupby(KIND, sort=False).ngroup()
    halves = table[number % 2 == 0], table[number % 2 == 1]
    for one, other in (halves, halves[::-1]):
        monkeypatch.setattr(waves, "COSTS", fitted(one))
        found = slowdowns(other)
        assert (found <= 1.02).sum() == 47 and len(found) == 55


def test_the_costs_are_those_of_the_table(table: pd.DataFrame) -> None:
    for rung, costs in fitted(table).items():
        for d, cost in costs.items():
            assert waves.COSTS[rung][d] == pytest.approx(cost, abs=2e-3), (rung, d)


def test_many_items_and_other_problems_are_left_to_the_last_rung() -> None:
    small = {"dtype": "bf16"}
    assert waves.fastest(Problem(1, 8, 64, 64, 64, **small), 132) == "v9"
    assert waves.fastest(Problem(4, 16, 16384, 16384, 64, **small), 132) is None
    assert waves.fastest(Problem(1, 8, 64, 64, 32, **small), 132) is None
    assert waves.fastest(Problem(1, 8, 64, 64, 64, window=(3, 0), **small), 132) is None
    assert waves.fastest(Problem(1, 8, 64, 64, 64, dtype="f32"), 132) is None


def test_it_is_asked_only_for_auto_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class H200:
        multi_processor_count = 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: H200)
    problem, gpu = Problem(1, 8, 64, 64, 64, dtype="bf16"), torch.device("cuda")
    assert runs._by_waves(problem, gpu, Choice()) == "v9"
    assert runs._by_waves(problem, gpu, Choice("v12c")) is None
    assert runs._by_waves(problem, torch.device("cpu"), Choice()) is None


def test_its_rungs_take_what_the_last_one_takes() -> None:
    ladder = discover()
    for name in waves.COSTS:
        rung, last = ladder[name], ladder[waves.LAST]
        assert (rung.dtypes, rung.takes, rung.needs) == (last.dtypes, last.takes, last.needs)
        assert {*waves.COSTS[name]} <= {*rung.head_dims} and rung.deterministic


def test_it_knows_the_last_rung() -> None:
    """Another one on top would be taken for small grids without being weighed."""
    ladder = discover()
    main = [one for one in ladder.computing("attention") if one.path.parent == root() and one.timed]
    assert main[-1] == ladder[waves.LAST]
