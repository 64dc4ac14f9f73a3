"""``ladder profile``: counters of a GPU beside the prediction, from a GPU, a report or a table.

A fake ncu replaces the GPU: it prints the real one's messages, or writes a report and prints its pages, with
the emulator's numbers or others.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from rungs import named

from ladder.cli import main
from ladder.counts import nsight, profiling
from ladder.counts.profiling import Run, hardware, runs
from ladder.errors import LadderError, ProfilerError, UnsupportedProblem
from ladder.operations import Problem
from ladder.run.emulator import COUNTERS
from ladder.run.evaluation import run_comparison

DATA = Path(__file__).parents[2] / "data" / "nsight"
MEASURED = Path(__file__).parents[3] / "results" / "h200" / "counters.csv"
Gpu = Callable[..., None]
Page = Callable[[str], Path]
Captured = pytest.CaptureFixture[str]

SMALL = Problem(1, 1, 64, 64, 32, dtype="f16")


@pytest.fixture
def page(tmp_path: Path) -> Page:
    def unpack(name: str) -> Path:
        path = tmp_path / f"{name}.csv"
        path.write_bytes(gzip.decompress((DATA / f"{name}.csv.gz").read_bytes()))
        return path

    return unpack


def measured(operation: str) -> pd.DataFrame:
    """The rows of one operation; the types of their columns are those of a file that has nothing else."""
    table = pd.read_csv(MEASURED, dtype=str)
    own = table[table["operation"] == operation].dropna(axis="columns", how="all")
    return pd.read_csv(io.StringIO(own.to_csv(index=False)))


def launch(run: Run, counts: dict[str, int | None], number: int = 0, **metrics: object) -> dict[str, object]:
    """The cells of the raw page for a launch with these counts."""
    cells: dict[str, object] = {}
    for column in COUNTERS:
        if column != "conflicts":  # the sum of three others
            first, *others = (name.removeprefix("-") for name in nsight.COUNTERS[column][0])
            cells |= {first: counts[column], **dict.fromkeys(others, 0)}
    mark = f"<default domain>:{runs._mark(number, run)}:none:none"
    place = {"Grid Size": "(1, 1, 1)", "Block Size": "(128, 1, 1)", "CC": "9.0"}
    return {
        "ID": number,
        "Kernel Name": "kernel",
        "A:Push/Pop_Range": mark,
        **place,
        **cells,
        **metrics,
    }


def raw_page(*launches: dict[str, object]) -> str:
    lines = ["==PROF== Connected to process 4711", ",".join(f'"{name}"' for name in launches[0])]
    lines.append(",".join('""' for _ in launches[0]))
    for one in launches:
        cells = (f"{value:,}" if isinstance(value, int) else value for value in one.values())
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join(lines) + "\n"


def predicted(run: Run) -> dict[str, int | None]:
    return run_comparison(run.problem, [run.stage], backend="emulator", arch="sm_90").rows[0]


def test_a_report_of_stages_is_beside_its_prediction(tmp_path: Path) -> None:
    runs = [Run(named("v2"), SMALL), Run(named("v3"), SMALL)]
    counts = [predicted(run) for run in runs]
    off = {**counts[1], "wavefronts_ld": counts[1]["wavefronts_ld"] + 3}
    path = tmp_path / "raw.csv"
    path.write_text(raw_page(launch(runs[0], counts[0]), launch(runs[1], off, 1)))
    equal, other = hardware.read([path])
    assert (equal.name, equal.problem) == (named("v2"), SMALL)
    assert (equal.row["arch"], equal.grid) == ("sm_90", "(1, 1, 1)")
    assert {column: equal.difference(column) for column in COUNTERS} == dict.fromkeys(COUNTERS, 0)
    assert {column: d for column in COUNTERS if (d := other.difference(column))} == {"wavefronts_ld": 3}


def test_a_report_without_the_counters_of_hopper(tmp_path: Path, capsys: Captured) -> None:
    newer = {column for column in COUNTERS if "gmma" in column or column.startswith("tma_")}
    metrics = set(nsight.metric_names(newer))
    runs = [Run(named("v3"), SMALL), Run("their_rung", SMALL)]
    cells = [launch(run, predicted(runs[0]), number) for number, run in enumerate(runs)]
    path = tmp_path / "raw.csv"
    path.write_text(raw_page(*({name: one[name] for name in one if name not in metrics} for one in cells)))
    ours, foreign = hardware.read([path])
    for one in (ours, foreign):
        assert {column for column in COUNTERS if one.row[column] is None} == newer
    assert {column for column in COUNTERS if ours.difference(column) is None} == newer
    assert main(["profile", "--import", str(path)]) == 0
    out = capsys.readouterr().out
    assert "the GPU counted what the emulator predicts" in out and "gmma" not in out and "tma" not in out


def test_a_report_of_an_h200_says_what_was_run(page: Page) -> None:
    counted = hardware.read([page("stages_raw")])
    assert [one.name for one in counted] == [named("v2"), named("v3")]
    for one in counted:
        assert one.problem == Problem(1, 2, 256, 256, 64, dtype="f16") and one.lost is not None
        assert one.row["ldmatrix_instructions"] == 4736  # of the kernels of then


def test_several_kernels_of_a_run_are_added_up(tmp_path: Path) -> None:
    run = Run(named("v3"), SMALL)
    path = tmp_path / "raw.csv"
    whole = predicted(run)
    half = {column: 8 if column == "ldmatrix_instructions" else 0 for column in COUNTERS}
    path.write_text(raw_page(launch(run, half), launch(run, whole), launch(run, half, 1)))
    first, second = hardware.read([path])
    assert (first.launches, second.launches) == (2, 1)
    assert first.difference("ldmatrix_instructions") == 8 and first.difference("mma_instructions") == 0


def test_a_stage_that_is_not_here_is_somebodys_kernel(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text(raw_page(launch(Run("their_rung", SMALL), dict.fromkeys(COUNTERS, 7))))
    (counted,) = hardware.read([path])
    assert counted.problem is None and counted.name == "kernel" and counted.row["conflicts_ld"] == 7


def test_somebodys_kernels_with_their_lines(page: Page, capsys: Captured) -> None:
    counted = hardware.read([page("transpose_raw"), page("transpose_source")])
    names = [one.name.partition("(")[0] for one in counted]
    assert names[2:4] == ["transposeCoalesced", "transposeNoBankConflicts"]
    assert counted[2].row["conflicts_ld"] == 512 * 31 and counted[2].predicted is None
    lines = counted[2].lines
    assert lines is not None
    assert lines[lines["text"].str.startswith("LDS")]["wavefronts"].sum() == 512 * 32
    assert main(["profile", "--import", str(page("transpose_raw")), str(page("transpose_source"))]) == 0
    out = capsys.readouterr().out
    assert "transposeCoalesced" in out and "15,872" in out and "LDS R" in out


def test_a_source_page_alone(page: Page) -> None:
    (counted,) = hardware.read([page("stages_source")])
    lines = counted.lines
    assert lines is not None and counted.launches == 2
    helper = lines[lines["file"].str.endswith("ladder/ptx.h") & (lines["line"] == 53)]
    assert helper["wavefronts"].to_list() == [86016 + 10752]


def test_measurements_of_the_repository(tmp_path: Path, capsys: Captured) -> None:
    table = measured("attention")
    chosen = table.query(f"stage == '{named('v5')}' and N == 256 and d == 64 and not causal")
    chosen.to_csv(tmp_path / "some.csv", index=False)
    half, bfloat = hardware.read([tmp_path / "some.csv"])
    assert half.problem == Problem(1, 2, 256, 256, 64, dtype="f16")
    assert bfloat.problem is not None and bfloat.problem.dtype == "bf16"
    # The table may predate a column, which is then empty.
    held = [column for column in COUNTERS if half.row[column] is not None]
    exact = [column for column in held if not column.startswith(("wavefronts", "conflicts"))]
    assert {"ldmatrix_instructions", "mma_instructions", "global_sectors_ld"} < set(exact)
    assert {column: half.difference(column) for column in exact} == dict.fromkeys(exact, 0)
    assert main(["profile", "--import", str(tmp_path / "some.csv"), "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["backend"] for row in rows] == ["cuda", "emulator"] * 2
    assert rows[0]["mma_instructions"] == rows[1]["mma_instructions"] > 0


@pytest.mark.parametrize(
    "operation", ["attention", "attention_backward", "decoding", "hstu", "hstu_backward"]
)
def test_measurements_of_every_operation_are_read(
    operation: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With predictions, as far as there is such a rung."""
    table = measured(operation)
    first = table[table["stage"] == table["stage"].iloc[0]].iloc[:1]
    first.to_csv(tmp_path / "some.csv", index=False)
    (counted,) = hardware.read([tmp_path / "some.csv"])
    assert counted.problem is not None and counted.problem.operation == operation
    assert counted.predicted is not None and counted.predicted["passed"], counted.why_not
    assert main(["profile", "--import", str(tmp_path / "some.csv")]) == 0
    assert f"{counted.name} on {counted.problem}" in " ".join(capsys.readouterr().out.split())


def test_measurements_of_a_rung_that_is_gone_are_read(tmp_path: Path) -> None:
    table = measured("hstu").iloc[:1]
    table.assign(stage="h0_gone").to_csv(tmp_path / "some.csv", index=False)
    (counted,) = hardware.read([tmp_path / "some.csv"])
    assert counted.problem is not None and counted.problem.operation == "hstu"
    assert "there is no stage 'h0_gone'" in counted.why_not


def test_of_many_problems_what_differs_comes_first(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladder.show.render.profile._SHOWN_PROBLEMS", 1)
    table = measured("attention")
    chosen = table.query(f"stage == '{named('v5')}' and N == 256 and d == 64 and not causal").copy()
    mma = "sm__inst_executed_pipe_tensor_op_hmma.sum"
    chosen.loc[chosen["dtype"] == "bf16", mma] += 5
    chosen.to_csv(tmp_path / "some.csv", index=False)
    assert main(["profile", "--import", str(tmp_path / "some.csv")]) == 0
    (only,) = (line for line in capsys.readouterr().out.splitlines() if named("v5") in line)
    assert only.split()[-4:] == ["mma", "9,216", "9,221", "+5"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2].rpartition(f",{named('v3')},")[0] + "\n", "is cut off"),
        *(
            (
                lambda text, size=size: text.replace(f",{named('v3')},1,", f",{named('v3')},{size},"),
                "no whole .* B",
            )
            for size in ("0", "-1", "1.5", "inf", "1e300")
        ),
        (lambda text: text.replace(",f16,", ",f17,"), "'f17' is none of"),
        (lambda text: text.rpartition(",")[0], "is cut off: its rows have"),
        (
            lambda text: text.replace(f",{named('v3')},1,2,", f",{named('v3')},1,2x,", 1),
            "'2x' is no number; .* under H",
        ),
        (lambda text: text.rpartition('"')[0], "is no whole table"),
    ],
)
def test_a_table_of_measurements_that_is_broken(
    tmp_path: Path, change: Callable[[str], str], message: str
) -> None:
    """It has no texts of problems, like ``arbitration.csv``."""
    table = pd.read_csv(MEASURED, dtype=str).drop(columns="problem")
    path = tmp_path / "broken.csv"
    path.write_text(change(table[table["stage"] == named("v3")].to_csv(index=False)))
    with pytest.raises(LadderError, match=rf"broken\.csv.*{message}"):
        hardware.read([path])


def test_a_problem_that_is_too_large_is_not_predicted(tmp_path: Path) -> None:
    path = tmp_path / "raw.csv"
    path.write_text(
        raw_page(launch(Run(named("v3"), Problem(4, 16, 4096, 4096, 64)), dict.fromkeys(COUNTERS, 1)))
    )
    (counted,) = hardware.read([path])
    assert counted.predicted is None and "too large" in counted.why_not and counted.row["conflicts_ld"] == 1


def test_the_page_of_an_older_ncu(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        "==PROF== Connected to process 7\n"
        '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","7","saxpy","smsp__inst_executed.sum","inst","1,024"\n'
        '"0","7","saxpy","gpu__time_duration.sum","usecond","2.5"\n'
        '"1","7","saxpy","smsp__inst_executed.sum","inst","1,024"\n'
    )
    (counted,) = hardware.read([path])
    assert (counted.name, counted.launches, counted.executed) == ("saxpy", 2, 2048)
    assert main(["profile", "--import", str(path)]) == 0
    out = capsys.readouterr().out
    assert "saxpy" in out and "2,048" in out


def test_marks_of_runs_say_all_of_them() -> None:
    for run in (
        Run(named("v1"), Problem(1, 2, 3, 4, 64)),
        Run("a", Problem(1, 4, 3, 4, 64, 2, "bf16", is_causal=True, scale=-0.125, inputs="large")),
        Run("a", Problem(1, 4, 3, 4, 64, scale=1e-30), {"WARPS": "4", "STEP": "no"}),
    ):
        assert runs._unmark(runs._mark(12, run)) == (12, run)
    assert runs._unmark("ladder-run-7") == (7, None)


#: A fake ncu. The file beside it says what to do.
FAKE_NCU = """\
#!{python}
import json, pathlib, sys
words = sys.argv[1:]
plan = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
print("==PROF== Connected to process 1")
if "--import" in words:
    print(plan["source" if "source" in words else "raw"])
elif plan.get("says"):
    print(plan["says"], file=sys.stderr)
    sys.exit(plan.get("code", 1))
else:
    asked = words[words.index("--metrics") + 1].split(",")
    unknown = [name for name in plan.get("unknown", []) if name in asked]
    if unknown:
        sys.exit("==ERROR== Failed to find metric " + unknown[0])
    pathlib.Path(words[words.index("-o") + 1]).write_text("NVR\\0" + " ".join(words))
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """``gpu(raw=..., source=..., says=..., unknown=...)``: a GPU, and an ncu that does this."""
    ncu = tmp_path / "ncu"
    ncu.write_text(FAKE_NCU.format(python=sys.executable))
    ncu.chmod(0o755)
    monkeypatch.setenv("LADDER_NCU", str(ncu))
    monkeypatch.setattr(hardware, "gpu_is_there", lambda: True)
    monkeypatch.setattr(hardware, "get_backend", lambda name: type("Gpu", (), {"target": lambda *_: None})())
    monkeypatch.setattr(runs, "_extension", lambda run: Path("extension.so"))

    def does(**plan: object) -> None:
        ncu.with_suffix(".json").write_text(json.dumps(plan))

    return does


def source_page(kernel: str, file: Path, line: int, wavefronts: int) -> str:
    return (
        f'"File Path","{file}"\n"Function Name","{kernel}"\n'
        '"Line No","Source","Address","Source","Instructions Executed","L1 Wavefronts Shared",'
        '"L1 Wavefronts Shared Ideal"\n'
        f'"{line}","asm("ldmatrix" : "=r"(x))","-","-","1","1","1"\n'
        f'"","","0x10","  LDSM.16.M88.4 R4, [R8] ","8","{wavefronts}","32"\n'
    )


def test_profile_of_a_stage(gpu: Gpu, capsys: Captured, tmp_path: Path) -> None:
    from ladder.stages import include_directory

    run = Run(named("v3"), SMALL)
    bounds = {
        nsight.BOUNDS["shared"]: 72.5,
        nsight.STALLS["short_scoreboard"]: 3.25,
        nsight.STALLS["wait"]: 1.0,
    }
    helper = include_directory() / "ladder" / "ptx.h"
    number = (
        next(n for n, text in enumerate(helper.read_text().splitlines(), 1) if "ldmatrix.sync" in text) + 2
    )
    gpu(
        raw=raw_page(launch(run, predicted(run), **bounds)), source=source_page("kernel", helper, number, 777)
    )
    report = tmp_path / "kept.ncu-rep"
    problem = ["--problem", "1,1,64,64,32", "--dtype", "f16"]
    assert main(["profile", "v3", *problem, "--report", str(report)]) == 0
    out = capsys.readouterr().out
    assert "the GPU counted what the emulator predicts" in out
    assert "72.5" in out and "short scoreboard, wait" in out
    assert f"ptx.h:{number}" in out and "777" in out
    words = report.read_text()
    assert "SourceCounters" in words and nsight.BOUNDS["tensor"] in words
    assert profiling.read_runs(report) == [run]


def test_an_older_ncu_that_lacks_metrics(gpu: Gpu, capsys: Captured) -> None:
    run = Run(named("v3"), SMALL)
    lacking = [nsight.BOUNDS["xu"], nsight.COUNTERS["ldmatrix_instructions"][0][0]]
    row = launch(run, predicted(run))
    del row[lacking[1]]
    gpu(raw=raw_page(row), source="", unknown=lacking)
    assert main(["profile", "v3", "--problem", "1,1,64,64,32", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert (
        rows[0]["ldmatrix_instructions"] is None
        and rows[0]["mma_instructions"] == rows[1]["mma_instructions"]
    )


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
            "Counters on the target device 0.",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
            "(like DCGM) is concurrently collecting profiling data.",
            "dcgmi profile --pause",
        ),
        (
            "==ERROR== An error was reported by the driver:\n"
            "==ERROR== Cuda driver is not compatible with Nsight Compute.",
            "LADDER_NCU",
        ),
        ("==WARNING== something new", "ncu failed"),
    ],
)
def test_what_ncu_cannot_do_is_said_and_the_emulator_counts(
    says: str, expected: str, gpu: Gpu, capsys: Captured
) -> None:
    gpu(says=says)
    assert main(["profile", "v3", "--problem", "1,1,64,64,32"]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and "What the emulator counts" in captured.err
    assert named("v3") in captured.out and "ldmatrix" in captured.out


def test_an_ncu_that_writes_nothing(gpu: Gpu, capsys: Captured) -> None:
    gpu(says="==WARNING== No kernels were profiled.", code=0)
    assert main(["profile", "v3", "--problem", "1,1,64,64,32"]) == 2
    assert "wrote no report" in capsys.readouterr().err


def test_no_ncu(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ProfilerError, match="not there"):
        hardware.profile([named("v3")], SMALL)


def test_no_gpu(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(hardware, "gpu_is_there", lambda: False)
    assert main(["profile", "v3", "--problem", "1,1,64,64,32", "--json", "-"]) == 2
    captured = capsys.readouterr()
    assert "no CUDA GPU" in captured.err and "--import" in captured.err
    assert json.loads(captured.out)[0]["backend"] == "emulator"


def test_a_problem_that_no_stage_takes(gpu: Gpu) -> None:
    with pytest.raises(UnsupportedProblem, match="no stage takes"):
        hardware.profile(None, Problem(1, 1, 64, 64, 20))


def test_a_file_that_is_no_report(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    assert main(["profile", "--import", str(tmp_path / "notes.csv")]) == 2
    assert "no table of Nsight Compute" in capsys.readouterr().err
    assert main(["profile", "--import", str(tmp_path / "missing.ncu-rep")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_the_script_that_measures_bounds(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    from tools.measure import measure_bounds

    runs = [Run(named("v2"), problem) for problem in measure_bounds.PROBLEMS]
    counts: dict[str, int | None] = dict.fromkeys(COUNTERS, 7)
    shared, time = nsight.BOUNDS["shared"], nsight.TIME
    launches = [launch(run, counts, i, **{shared: 90.0 + i, time: 0.5}) for i, run in enumerate(runs)]
    # A short kernel before the last one: shares must not be added.
    launches.insert(2, launch(runs[2], counts, 2, **{shared: 1.0, time: 0.1}))
    gpu(raw=raw_page(*launches))
    monkeypatch.setattr(measure_bounds, "build_all", lambda names: names)
    monkeypatch.setattr(measure_bounds, "environment_here", lambda ncu: {"gpu": "a GPU"})
    measure_bounds.measure(tmp_path, [named("v2")])
    table = pd.read_csv(tmp_path / "bounds.csv")
    assert table[["gpu", "stage", "N", "d", "dtype"]].to_numpy().tolist() == [
        ["a GPU", named("v2"), 1024, 64, "f16"],
        ["a GPU", named("v2"), 4096, 64, "bf16"],
        ["a GPU", named("v2"), 4096, 128, "bf16"],
    ]
    assert nsight.bounds(table)["shared"].to_list() == [90.0, 91.0, 92.0]
