"""What the benchmarks measure is what they say they measure."""

from __future__ import annotations

import pytest

from ladder.bench import ceilings
from ladder.build import Target, build_program
from ladder.emulate import run_program

WHERE = {"gpu": "a GPU", "sm_count": "4", "compiler": "nvcc", "date": "2026-01-01"}


def test_each_ceiling_does_the_work_that_its_rate_is_made_of(capfd: pytest.CaptureFixture[str]) -> None:
    program = build_program([ceilings.SOURCE], Target("emulator", "sm_80"))
    result = run_program(program, ["2", "1"], "sm_80")
    assert result.exit_code == 0 and not result.fault
    work = {name: float(number) for name, number, *_ in map(split, capfd.readouterr().out.splitlines())}
    assert list(work) == list(ceilings.COUNTED)
    mma, ldmatrix = result.launches[:2]
    assert mma.counters["mma_instructions"] * 2 * 16 * 8 * 16 == work["mma.sync"]
    assert ldmatrix.counters["ldmatrix_instructions"] * 512 == work["ldmatrix"]
    # 128 bytes a wavefront: no conflict holds it up.
    assert ldmatrix.counters["wavefronts_ld"] * 128 == work["ldmatrix"]
    assert mma.grid is not None
    threads_rounds_chains = mma.grid[0] * 512 * 2 * 8
    assert work["ex2.approx"] == threads_rounds_chains and work["fma"] == 2 * threads_rounds_chains


def split(line: str) -> list[str]:
    return line.split(",")


def test_the_program_says_what_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    program = build_program([ceilings.SOURCE], Target("emulator", "sm_80"))
    assert run_program(program, ["0", "1"], "sm_80").exit_code == 2
    assert "ROUNDS LAUNCHES" in capfd.readouterr().err


def test_rates_of_ceilings() -> None:
    # 8e12 operations in 2 ms on 4 SMs of 2 GHz.
    rows = ceilings.frame("mma.sync,8e12,2,2\nfma,8e9,2,2\n", WHERE)
    assert list(rows["per_second"]) == [4e15, 4e12]
    assert list(rows["per_clock_and_sm"]) == [500_000, 500]
    assert list(rows["counted"]) == ["operations", "operations"]
    assert rows["gpu"][0] == "a GPU"
