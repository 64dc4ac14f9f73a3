"""Accesses whose cost ptxas decides: the emulator's counts for tools/measure/accesses.cu are an H200's,
case by case (tools/measure/measure_accesses.py).
"""

from __future__ import annotations

import csv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ladder.compile import EmulatorTarget, build_program
from ladder.run.emulator import run_program

ROOT = Path(__file__).parents[2]
ARCH = "sm_90"
#: The emulator's counter for each column of the file.
COLUMNS = {
    "shared_loads": "shared_load_instructions",
    "shared_stores": "shared_store_instructions",
    "ldmatrix": "ldmatrix_instructions",
    "wavefronts_ld": "wavefronts_ld",
    "wavefronts_st": "wavefronts_st",
    "conflicts_ld": "conflicts_ld",
    "conflicts_st": "conflicts_st",
    "conflicts_atom": "conflicts_atom",
    "conflicts": "conflicts",
}
#: A loop that ptxas unrolls, reusing in one iteration what the previous one has loaded.
NOT_MODELLED = "scalars_in_a_loop"


def measured() -> dict[str, dict[str, int]]:
    with (ROOT / "results" / "h200" / "accesses.csv").open(newline="") as file:
        return {
            row.pop("case"): {name: int(value) for name, value in row.items()} for row in csv.DictReader(file)
        }


MEASURED = measured()


@pytest.fixture(scope="module")
def counted() -> dict[str, dict[str, int | None]]:
    program = build_program([ROOT / "tools" / "measure" / "accesses.cu"], EmulatorTarget(ARCH), [])

    def counts(case: str) -> dict[str, int | None]:
        (launch,) = run_program(program, [case], ARCH).launches
        return {column: launch.counters[name] for column, name in COLUMNS.items()}

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(MEASURED, pool.map(counts, MEASURED), strict=True))


GROUPS = sorted({case.split()[0] for case in MEASURED} - {NOT_MODELLED})


def test_the_file_is_whole() -> None:
    assert len(MEASURED) == 176 and len(GROUPS) > 30


@pytest.mark.parametrize("group", GROUPS)
def test_counts_are_the_hardware_s(group: str, counted: dict[str, dict[str, int | None]]) -> None:
    for case, hardware in MEASURED.items():
        if case.split()[0] != group:
            continue
        ours = counted[case]
        wanted = {column: hardware[column] for column in COLUMNS}
        if group.startswith("bulk"):  # the emulator counts only their bytes and sectors
            wanted = {name: value for name, value in wanted.items() if ours[name] is not None}
        assert {name: ours[name] for name in wanted} == wanted, case
