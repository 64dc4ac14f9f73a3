#!/usr/bin/env python3
"""Measures the stages' hardware counters with Nsight Compute on this machine's GPU.

    python3 -m tools.measure.measure_counters --out DIR [--stages STAGE ...]

Needs a GPU, ncu, nvcc and a Python with torch, pandas and rich; the package need not be installed.
It takes some minutes and writes into DIR:

counters.csv      some rows per stage and calibration problem of its operation (at most one block per SM):
                  what was measured on what, then every metric as ncu gave it
arbitration.csv   the same for a grid that fills the GPU, several times over, and for v3 at d = 64
                  with the swizzle parameters that are right for d = 128: conflicts of addresses against
                  lost arbitration between clients of the L1
pages.tar.gz      the report of one launch of each of these stages, its source pages as printed, by SASS and
                  by CUDA line, and the metrics that this ncu knows for this GPU

``results/h200/`` holds what it wrote on an H200.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

import pandas as pd  # noqa: E402

from ladder.counts import nsight, profiling  # noqa: E402
from ladder.counts.profiling import Run  # noqa: E402
from ladder.errors import LadderError  # noqa: E402
from ladder.operations import (  # noqa: E402
    CALIBRATION_PROBLEMS,
    DEFAULT_GPU_PROBLEM,
    DEFAULT_OPERATION,
    Operation,
    get_operation,
    operation_of,
)
from ladder.stages import Stage, discover  # noqa: E402

#: Metrics beside the table's, which explain them.
OTHER_METRICS = (
    "smsp__inst_executed.sum",
    "smsp__sass_inst_executed_op_ldgsts.sum",
    "smsp__sass_inst_executed_op_global_red.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block",
)

#: Metrics that exist wherever this was run, whatever the listing says.
CERTAIN = {
    name.partition(".")[0] for name in nsight.metric_names(("wavefronts_ld", "wavefronts_st", "conflicts"))
}

REPEATS = 3
#: Lost arbitration only adds to counters, so the minimum of several launches is the accesses' own cost.
CALIBRATION_REPEATS = 3


def metrics_here(ncu: Path, pages: Path) -> list[str]:
    """The metrics of the table and of :data:`OTHER_METRICS` that this ncu has; writes the listing.

    Attributes of the launch and the source are not in every listing; ncu itself reports if it lacks one.
    """
    listing = ""
    for option in ((), ("--query-metrics-collection", "source"), ("--query-metrics-collection", "launch")):
        done = subprocess.run([str(ncu), "--query-metrics", *option], capture_output=True, text=True)
        listing += f"# ncu --query-metrics {' '.join(option)}\n{done.stdout}{done.stderr}\n"
    (pages / "metric_names.txt").write_text(listing)
    wanted = [*nsight.metric_names(), nsight.TIME, *nsight.ARBITRATION, *OTHER_METRICS]
    unlisted = {name for name in wanted if name.startswith(("launch__", "memory_"))}
    found = nsight.known(wanted, nsight.available_metrics(listing) | CERTAIN | unlisted)
    missing = sorted(set(wanted) - set(found))
    print(f"{len(found)} of {len(set(wanted))} metrics; missing: {missing}", flush=True)
    return found


def collect(runs: list[Run], report: Path, metrics: list[str], ncu: Path) -> pd.DataFrame:
    """Profiles the runs, dropping metrics that ncu refuses after all."""
    started = time.monotonic()
    refused = profiling.collect_known(runs, report, metrics=metrics, ncu=ncu)
    if refused:
        print(f"ncu does not know {refused}", flush=True)
    launches = profiling.read_report(report, ncu)
    print(f"{report.name}: {len(launches)} launches, {time.monotonic() - started:.0f} s", flush=True)
    return launches


def rows(
    runs: list[Run], launches: pd.DataFrame, environment: dict[str, str], metrics: list[str]
) -> pd.DataFrame:
    """One row per run: environment, problem, grid, metrics."""
    stages = discover()
    summed = profiling.sum_launches(launches)
    described = []
    for number in summed.index:
        run, first = runs[number], launches[launches["run"] == number].iloc[0]
        problem = stages[run.stage].accept(run.problem)
        described.append(
            {
                **environment,
                "stage": run.stage,
                **operation_of(problem).row(problem),
                "dtype": problem.dtype,
                "problem": problem.text,
                "kernel": first["Kernel Name"],
                "grid": first["Grid Size"],
                "block": first["Block Size"],
            }
        )
    # ncu adds device attributes, and the average, minimum and maximum of each metric.
    kept = summed[[name for name in ("launches", *metrics) if name in summed.columns]]
    numbers = kept.apply(lambda column: column.astype("Int64") if (column % 1 == 0).all() else column)
    return pd.concat([pd.DataFrame(described, index=summed.index), numbers], axis=1)


def summary(measured: pd.DataFrame) -> str:
    """Conflicts and lost arbitration of each kernel and grid: minimum and maximum over the repeats."""
    frame = pd.concat([measured[["stage", "d", "grid"]], nsight.counters(measured)["conflicts"]], axis=1)
    lost = nsight.ARBITRATION[0]
    if lost in measured.columns:
        frame["lost arbitration"] = measured[lost]
    grouped = frame.groupby(["stage", "d", "grid"], sort=False)
    return str(grouped.agg(["min", "max"]).to_string())


def environment_here(ncu: Path) -> dict[str, str]:
    """The environment of the measurement, as columns."""
    from tools.bench import provenance

    said = subprocess.run([str(ncu), "--version"], capture_output=True, text=True).stdout
    version = re.search(r"Version (\S+)", said)
    return {**provenance.measured_on(), "ncu": version[1] if version else ""}


def with_foreign_swizzle(folder: Path) -> str:
    """Makes a copy of v3 whose 16-bit tiles always use the shift that is right for d = 128."""
    name = "v3_swizzle_for_128"
    shutil.copytree(discover()["v3"].path, folder / name)
    kernel = folder / name / "kernel.cu"
    text, changed = re.subn(
        r"(static constexpr int S = )(.*?);", r"\1sizeof(T) == 2 ? 4 : \2;", kernel.read_text()
    )
    if changed != 1:
        raise LadderError(f"{changed} definitions of S in {kernel}; there should be one")
    kernel.write_text(text)
    return name


def build_all(names: Iterable[str]) -> list[str]:
    """Builds the stages in parallel; returns those that build."""
    from ladder.compile import build_all as build_stages
    from ladder.run.backends import CudaBackend

    stages, backend = [discover()[name] for name in names], CudaBackend()
    built = build_stages(stages, {stage.name: backend.target(stage, None) for stage in stages})
    for name, result in built.items():
        if isinstance(result, LadderError):
            print(f"{name} is left out: {result}", flush=True)
    return [name for name, result in built.items() if not isinstance(result, LadderError)]


def save_source_pages(runs: list[Run], directory: Path, ncu: Path) -> None:
    """Saves the source pages of one launch per stage, by SASS instruction and by CUDA line."""
    report = directory / "source.ncu-rep"
    profiling.collect(runs, report, sections=["SourceCounters"], ncu=ncu)
    for view in ("sass", "cuda", "cuda,sass"):
        words = nsight.import_command(report, "source", "--print-source", view, ncu=ncu)
        done = subprocess.run(words, capture_output=True, text=True)
        (directory / f"source_{view.replace(',', '_')}.csv").write_text(done.stdout + done.stderr)


def calibration_runs(stage: Stage, operation: Operation) -> list[Run]:
    """The operation's calibration problems, and one more in bf16, of those that the stage takes."""
    second: Any = operation.calibration_problems[1]
    in_bf16 = replace(second, dtype="bf16")
    problems = [*operation.calibration_problems, in_bf16]
    return [
        Run(stage.name, problem)
        for problem in problems
        if stage.suits(problem)
        for _ in range(CALIBRATION_REPEATS)
    ]


def arbitration_runs(names: list[str]) -> list[Run]:
    return [
        Run(name, replace(problem, head_dim=head_dim))
        for name in names
        for head_dim in (64, 128)
        for problem in (CALIBRATION_PROBLEMS[0], DEFAULT_GPU_PROBLEM)
        for _ in range(REPEATS)
    ]


def write_rows(measured: pd.DataFrame, file: Path) -> None:
    """Writes the rows; those of other stages that the file has stay."""
    if file.is_file():
        before = pd.read_csv(file, low_memory=False)
        others = before[~before["stage"].isin(set(measured["stage"]))]
        measured = pd.concat([others, measured])
    measured.to_csv(file, index=False)


def measure(out: Path, names: list[str]) -> None:
    """Does all measurements; if one fails, earlier results are kept. Raises :class:`LadderError`."""
    names = names or [stage.name for stage in discover() if stage.is_own]
    ncu = nsight.find_ncu()
    environment = environment_here(ncu)
    print(environment, flush=True)
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as temporary:
        pages, foreign = Path(temporary) / "pages", Path(temporary) / "stages"
        pages.mkdir()
        foreign.mkdir()
        metrics = metrics_here(ncu, pages)
        os.environ["LADDER_STAGES"] = str(foreign)
        wrong = [with_foreign_swizzle(foreign)] if discover()["v3"].name in names else []
        names = build_all([*names, *wrong])
        print(f"built {', '.join(names)}", flush=True)
        for name in names:
            if name not in wrong:
                operation = get_operation(discover()[name].computes)
                runs = calibration_runs(discover()[name], operation)
                launches = collect(runs, Path(temporary) / f"{name}.ncu-rep", metrics, ncu)
                of_stage = rows(runs, launches, {**environment, "operation": operation.name}, metrics)
                write_rows(of_stage, out / "counters.csv")
        filling = [name for name in names if fills_the_gpu(discover()[name])]
        if filling:
            try:
                measure_arbitration(filling, out, pages, environment, metrics, ncu)
            finally:
                with tarfile.open(out / "pages.tar.gz", "w:gz") as archive:
                    archive.add(pages, arcname="pages")


def fills_the_gpu(stage: Stage) -> bool:
    """Whether arbitration is measured: v1 is slow, and what runs on sm_90a alone has no ldmatrix."""
    return stage.computes == DEFAULT_OPERATION and stage.number != "v1" and not stage.only_arch


def measure_arbitration(
    names: list[str], out: Path, pages: Path, environment: dict[str, str], metrics: list[str], ncu: Path
) -> None:
    """Writes arbitration.csv, and the source pages of one launch of each stage."""
    runs = arbitration_runs(names)
    fewer = {*nsight.metric_names(), nsight.TIME, *nsight.ARBITRATION}
    few_metrics = [name for name in metrics if name in fewer]
    launches = collect(runs, pages.parent / "arbitration.ncu-rep", few_metrics, ncu)
    measured = rows(runs, launches, environment, few_metrics)
    write_rows(measured, out / "arbitration.csv")
    print(summary(measured), flush=True)
    save_source_pages([Run(name, CALIBRATION_PROBLEMS[1]) for name in names], pages, ncu)


def main(description: str, measure: Callable[[Path, list[str]], None]) -> int:
    """Runs the command line of a script that measures stages and writes into a folder."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--stages", nargs="+", default=[], metavar="STAGE", help="default: all")
    options = parser.parse_args()
    try:
        if not options.out.is_dir():
            raise LadderError(f"{options.out} is no folder")
        measure(options.out, options.stages)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(__doc__, measure))
