"""The comparison of other people's kernels: which counts differ, and for which cause."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from ladder.counts import nsight
from ladder.errors import LadderError
from tools.measure import measure_other_kernels as other

LOADS = "smsp__sass_inst_executed_op_shared_ld.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def key(kernel: str) -> dict[str, str]:
    return {"repository": "a/b", "kernel": kernel, "grid": "4x1x1", "block": "32x1x1"}


def launch(kernel: str = "k", lost: int = 0, **counters: int) -> dict[str, Any]:
    metrics = dict.fromkeys(nsight.metric_names(), 0)
    named = {"loads": LOADS, "conflicts": CONFLICTS, "sectors": SECTORS}
    return {**key(kernel), **metrics, other.LOST: lost, **{named[n]: v for n, v in counters.items()}}


def counted(kernel: str = "k", **counters: int | None) -> pd.DataFrame:
    row = {**key(kernel), **dict.fromkeys(other.COUNTERS, 0), **counters}
    return pd.DataFrame([row]).astype(dict.fromkeys(other.COUNTERS, "Int64"))


def compared(launches: list[dict[str, Any]], ours: pd.DataFrame) -> list[tuple[str, str, str]]:
    cells = other.differences(pd.DataFrame(launches), ours)
    return [(cell.column, cell.measured, cell.cause) for cell in cells]


def test_equal_counts_are_no_difference() -> None:
    assert compared([launch(loads=3)], counted(shared_load_instructions=3)) == []


def test_a_count_that_differs_is_told() -> None:
    ours = counted(shared_load_instructions=4)
    assert compared([launch(loads=3, lost=9)], ours) == [("shared_load_instructions", "3", "")]


def test_an_empty_cell_is_a_difference() -> None:
    assert compared([launch(loads=3)], counted(shared_load_instructions=None)) == [
        ("shared_load_instructions", "3", "")
    ]


def test_a_metric_that_was_not_measured_is_not_compared() -> None:
    row = launch(loads=3)
    del row[SECTORS]
    assert compared([row], counted(shared_load_instructions=3, global_sectors_ld=5)) == []


def test_lost_arbitration_is_left_out_by_the_least_of_several_launches() -> None:
    launches = [launch(conflicts=24, lost=16), launch(conflicts=8)]
    assert compared(launches, counted(conflicts_ld=8)) == []


def test_what_every_launch_loses_is_told_with_its_cause() -> None:
    launches = [launch(conflicts=24, lost=16), launch(conflicts=20, lost=12)]
    assert compared(launches, counted(conflicts_ld=8)) == [("conflicts_ld", "20 to 24", "lost arbitration")]


@pytest.mark.parametrize("ours", [3, 21])
def test_lost_arbitration_is_no_excuse_for_more_or_for_less_than_it(ours: int) -> None:
    launches = [launch(conflicts=20, lost=16)]
    assert compared(launches, counted(conflicts_ld=ours)) == [("conflicts_ld", "20", "")]


def test_a_count_that_changes_from_launch_to_launch_is_a_matter_of_timing() -> None:
    launches = [launch(sectors=20), launch(sectors=21)]
    assert compared(launches, counted(global_sectors_ld=24)) == [("global_sectors_ld", "20 to 21", "timing")]


def test_a_kernel_in_one_table_alone_is_an_error() -> None:
    with pytest.raises(LadderError, match=r"1 kernels are in one table alone.*'new'"):
        other.differences(pd.DataFrame([launch(), launch("new")]), counted())


def test_the_report_is_aligned_and_counts_the_kernels() -> None:
    kernels = ["exact", "both", "lost"]
    launches = [launch("exact"), launch("both", loads=1234, lost=1, conflicts=1)]
    launches += [launch("lost", lost=2, conflicts=2)]
    ours = pd.concat([counted(kernel) for kernel in kernels])
    assert other.report(other.differences(pd.DataFrame(launches), ours), 3).splitlines() == [
        "kernel  column                    measured  emulator",
        "both    shared_load_instructions     1,234         0",
        "both    conflicts_ld                     1         0  lost arbitration",
        "lost    conflicts_ld                     2         0  lost arbitration",
        "1 of 3 kernels are equal in every column, 1 but for lost arbitration",
    ]


@pytest.mark.parametrize(
    ("demangled", "name"),
    [
        ("void k<(int)16, (bool)1, (unsigned int)8>(const float *, int)", "k<16,1,8>"),
        ("k<16, true, 8u>(float const*, int)", "k<16,1,8>"),
        ("void <unnamed>::k(float *)", "k"),
        ("(anonymous namespace)::k(float*)", "k"),
        ("reduce0<int>(int*, int*, unsigned int)", "reduce0<int>"),
    ],
)
def test_the_emulator_and_ncu_name_a_kernel_alike(demangled: str, name: str) -> None:
    assert other.plain_name(demangled) == name


def test_a_kernel_with_two_causes_is_counted_once() -> None:
    launches = [launch(lost=1, conflicts=1, sectors=sectors) for sectors in (20, 21)]
    cells = other.differences(pd.DataFrame(launches), counted(global_sectors_ld=24))
    assert other.summary(cells, 1) == (
        "0 of 1 kernels are equal in every column, 1 but for lost arbitration and timing"
    )


def test_one_kernel_on_two_grids_is_two_kernels() -> None:
    first, second = launch(loads=3), {**launch(loads=3), "grid": "8x1x1"}
    ours = pd.concat([counted(), counted().assign(grid="8x1x1")])
    cells = other.differences(pd.DataFrame([first, second]), ours)
    assert other.summary(cells, 2) == "0 of 2 kernels are equal in every column"


def test_no_count_differs_from_the_h200_s_but_for_lost_arbitration_and_timing() -> None:
    launches, ours = other.read()
    assert len(launches) == other.LAUNCHES * len(ours)
    assert all(cell.cause for cell in other.differences(launches, ours))


def test_every_driver_belongs_to_one_program_of_a_repository_with_a_commit() -> None:
    drivers = [program.driver for program in other.programs()]
    assert sorted(drivers) == sorted(other.DRIVERS.glob("*.cu"))
    assert {program.repository for program in other.programs()} == set(other.commits())
    assert all(len(commit) == 40 for commit in other.commits().values())
