"""No measured time is below the bound, and the bound is not trivial."""

from collections import defaultdict
from pathlib import Path
from statistics import median

import pandas as pd
import pytest
from rungs import named

from ladder.counts.time import Measured, bounded_rungs, count_stage, counted_work, load_gpu, measured_rows
from ladder.operations import Problem
from ladder.stages import discover

RESULTS = Path(__file__).parents[3] / "results"
#: A launch of each rung at three sizes, whose clock is known.
CLOCKED = "h200/bounds.csv"


@pytest.fixture(scope="module")
def rows() -> list[Measured]:
    return list(measured_rows(RESULTS))


def test_no_measured_time_is_below_the_problems_bound(rows: list[Measured]) -> None:
    faster = [row for row in rows if row.bound().ms > row.ms]
    assert faster == []
    by_file = defaultdict(list)
    for row in rows:
        by_file[row.file].append(row)
    assert len(rows) > 3900 and len(by_file) >= 20


def test_no_measured_time_is_below_the_rungs_bound() -> None:
    bounded = list(bounded_rungs(RESULTS))
    assert [row for row, bound in bounded if bound.ms > row.ms] == []
    assert len(bounded) > 120


def test_the_bound_is_not_trivial() -> None:
    """The median over the rungs from v2 on of bound / measured, at the clock that the measurement had."""
    shares = defaultdict(list)
    for row, bound in bounded_rungs(RESULTS, CLOCKED):
        if row.clock_mhz is not None:
            shares[row.contender].append(bound.ms / row.ms)
    assert len(shares) >= 16
    assert median(median(of_rung) for of_rung in shares.values()) >= 0.6


def test_the_clock_of_a_launch_is_that_of_its_counters() -> None:
    """Power limits it where the tensor cores are busiest; it is never above the GPU's highest."""
    clocks = {
        (row.contender, row.problem and row.problem.head_dim): row.clock_mhz
        for row in measured_rows(RESULTS, CLOCKED)
    }
    assert clocks[named("v1"), 64] is None
    known = {name: clock for name, clock in clocks.items() if clock is not None}
    assert len(known) >= 30 and max(known.values()) <= load_gpu("h200").clock_mhz
    assert known[named("v12b"), 128] < 1700 < known[named("v2"), 128]


def test_kept_work_is_what_nsight_compute_counted() -> None:
    """Products agree, and wavefronts up to those that are repeated when blocks collide."""
    works, compared = counted_work(RESULTS), 0
    for row in pd.read_csv(RESULTS / CLOCKED).to_dict("records"):
        problem = Problem.from_text(row["problem"])
        work = works.get((row["stage"], problem.text))
        if work is None or row["dtype"] == "f32" or row["smsp__sass_inst_executed_op_shared_gmma.sum"]:
            continue
        compared += 1
        products = row["sm__inst_executed_pipe_tensor_op_hmma.sum"]
        assert work.amounts["mma f32 f16"] == 4096 * products, row["stage"]
        loads, stores = (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
        assert 0.98 * (row[loads] + row[stores]) < work.amounts["shared"] <= row[loads] + row[stores]
    assert compared >= 15


def test_kept_work_is_what_the_emulator_counts() -> None:
    problem = Problem(4, 16, 1024, 1024, 64, dtype="f16")
    counted = count_stage(discover()["v3"], problem, load_gpu("h200"))
    (work,) = counted.launches
    kept = counted_work(RESULTS)[named("v3"), problem.text]
    assert work.grid == kept.grid == (16, 16, 4)
    assert work.amounts == kept.amounts
    assert work.items == kept.items and work.items["shared"][0] == 1024
