"""Stages under Nsight Compute, with a fake ncu that prints what the real one would."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pandas as pd
import pytest
from rungs import named

from ladder.counts import nsight, profiling
from ladder.counts.profiling import Run, runs
from ladder.errors import LadderError, ProfilerError
from ladder.operations import Problem

LD = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"

#: Two kernels for every run, and one that belongs to none.
FAKE_NCU = """\
#!{python}
import json, pathlib, sys
words = sys.argv[1:]
print("==PROF== Connected to process 1")
if "--import" not in words:
    if "fail" in " ".join(words):
        sys.exit("==ERROR== ERR_NVGPUCTRPERM - no permission")
    pathlib.Path(words[words.index("-o") + 1]).write_text(words[words.index("--metrics") + 1])
    sys.exit()
report = pathlib.Path(words[words.index("--import") + 1])
runs = json.loads(report.with_suffix(".json").read_text())
row = lambda cells: print(",".join(f'"{{cell}}"' for cell in cells))
row(["ID", "Kernel Name", "Grid Size", "thread Domain:Push/Pop_Range:PL_Type", report.read_text()])
row([""] * 5)
row([0, "other", "(1, 1, 1)", "", "5"])
for number in range(len(runs)):
    for kernel in ("first", "second"):
        row([1, kernel, "(1, 1, 1)", f"<default domain>:ladder-run-{{number}}:none", f"{{number + 1}},000"])
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ncu"
    path.write_text(FAKE_NCU.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("LADDER_NCU", str(path))
    monkeypatch.setattr(runs, "_extension", lambda run: Path("extension.so"))
    return path


RUNS = [
    Run(named("v1"), Problem(1, 2, 64, 64, 32)),
    Run(named("v2"), Problem(1, 2, 64, 64, 32), {"A": "1"}),
]


def test_runs_come_back_with_their_counts(ncu: Path, tmp_path: Path) -> None:
    report = tmp_path / "a.ncu-rep"
    profiling.collect(RUNS, report, metrics=[LD])
    assert profiling.read_runs(report) == RUNS
    launches = profiling.read_report(report)
    assert launches["run"].to_list() == [0, 0, 1, 1]
    assert launches["Kernel Name"].to_list() == ["first", "second"] * 2
    summed = profiling.sum_launches(launches)
    assert summed["launches"].to_list() == [2, 2]
    assert summed[LD].to_list() == summed["wavefronts_ld"].to_list() == [2000, 4000]
    assert summed["wavefronts_st"].isna().all()


def test_without_ranges_the_order_is_what_there_is() -> None:
    raw = nsight.read_raw(f"ID,Kernel Name,{LD}\n0,a,1\n1,b,2\n")
    assert profiling.with_run(raw, 2)["run"].to_list() == [0, 1]
    assert len(profiling.with_run(raw, 3)) == 0


def test_what_ncu_cannot_do_is_said(ncu: Path, tmp_path: Path) -> None:
    with pytest.raises(LadderError, match="no permission"):
        profiling.collect(RUNS, tmp_path / "fail.ncu-rep", metrics=[LD])


def test_no_ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LADDER_NCU", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ProfilerError, match="not there") as caught:
        nsight.find_ncu()
    assert "LADDER_NCU" in caught.value.hint


def test_rows_of_the_measuring_script(ncu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.measure import measure_counters

    report = tmp_path / "a.ncu-rep"
    (report.with_suffix(".json")).write_text(json.dumps([]))
    launches = pd.DataFrame(
        {
            "run": [0],
            "Kernel Name": ["k"],
            "Grid Size": ["(1, 2, 1)"],
            "Block Size": ["(128, 1, 1)"],
            LD: [12.0],
        }
    )
    (row,) = measure_counters.rows(RUNS[:1], launches, {"gpu": "H200"}, [LD]).to_dict("records")
    assert (row["gpu"], row["stage"], row["H"], row["dtype"]) == ("H200", named("v1"), 2, "f32")
    assert (row["grid"], row["launches"], row[LD]) == ("(1, 2, 1)", 1, 12)
    # The file is raw: the table's columns are computed when it is read.
    assert "wavefronts_ld" not in row


def test_the_foreign_swizzle_changes_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ladder.stages import root
    from tools.measure import measure_counters

    name = measure_counters.with_foreign_swizzle(tmp_path)
    ours = (root() / named("v3") / "kernel.cu").read_text().splitlines()
    theirs = (tmp_path / name / "kernel.cu").read_text().splitlines()
    assert len(ours) == len(theirs) and sum(a != b for a, b in zip(ours, theirs, strict=True)) == 1
