"""Stages under Nsight Compute: one launch of each, its hardware counters as rows of the table.

``collect`` builds the stages, then runs this module as a program under ncu; that program launches each stage
once, between cudaProfilerStart and cudaProfilerStop and inside an NVTX range that holds its number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd

from ladder import nsight
from ladder.errors import LadderError
from ladder.problem import Problem

_RANGE = "ladder-run-"


@dataclass(frozen=True)
class Run:
    """One launch to profile: a stage on a problem, with options of its stage.toml."""

    stage: str
    problem: Problem
    options: Mapping[str, str] = field(default_factory=dict)


def collect(
    runs: Sequence[Run],
    report: Path,
    *,
    metrics: Iterable[str] = (),
    sections: Iterable[str] = (),
    ncu: Path | str | None = None,
    timeout_s: float | None = None,
) -> None:
    """Profiles each run on the GPU and writes ``report`` (.ncu-rep); the list of runs lies beside it (.json).

    Raises :class:`LadderError`: a stage does not build or run, or ncu cannot profile here.
    """
    for run in runs:
        _extension(run)
    listing = report.with_suffix(".json")
    listing.write_text(json.dumps([asdict(run) for run in runs], indent=1))
    words = nsight.command(
        [sys.executable, "-m", "ladder.profiling", str(listing)],
        metrics=metrics,
        sections=sections,
        report=report,
        only_marked=True,
        ncu=ncu or nsight.find_ncu(),
    )
    nsight.run(words, timeout_s=timeout_s)


def read_runs(report: Path) -> list[Run]:
    """The runs that a report was collected from."""
    listing = json.loads(report.with_suffix(".json").read_text())
    return [Run(item["stage"], Problem(**item["problem"]), item["options"]) for item in listing]


def read_report(report: Path, ncu: Path | str | None = None) -> pd.DataFrame:
    """The raw page of a report with the column ``run``, the index into the list of runs. Raises
    :class:`LadderError`."""
    raw = nsight.read_raw(nsight.run(nsight.import_command(report, "raw", ncu=ncu or nsight.find_ncu())))
    return with_run(raw, len(read_runs(report)))


def with_run(raw: pd.DataFrame, runs: int) -> pd.DataFrame:
    """The raw page of such a report with the column ``run``; launches of no run are left out.

    An ncu that shows no NVTX ranges leaves only the order, which will do when each run is one launch.
    """
    numbers = nsight.ranges(raw, rf"{_RANGE}(\d+)")
    if numbers.isna().all() and len(raw) == runs:
        numbers = pd.Series(range(runs), index=raw.index)
    launches = raw[numbers.notna()].copy()
    launches.insert(0, "run", numbers[numbers.notna()].astype("int64"))
    return launches


def sum_launches(launches: pd.DataFrame) -> pd.DataFrame:
    """The table's counter columns, and every metric, one row a run: summed where a run launches several
    kernels."""
    metrics = [name for name in launches.columns if launches[name].dtype == "float64"]
    frame = pd.concat([launches[["run", *metrics]], nsight.counters(launches)], axis=1)
    summed = frame.groupby("run").sum(min_count=1)
    summed.insert(0, "launches", launches.groupby("run").size())
    return summed


def _extension(run: Run) -> Path:
    from ladder.backends.cuda import CudaBackend
    from ladder.build import build
    from ladder.stages import discover

    stage = discover()[run.stage]
    return build(stage, CudaBackend().target(stage, None), stage.chosen_options(run.options))


def _launch(number: int, run: Run) -> None:
    import torch

    from ladder.backends.base import call, make_outputs
    from ladder.inputs import make_inputs
    from ladder.stages import discover

    problem = discover()[run.stage].accept(run.problem)
    extension = _extension(run)
    q, k, v = make_inputs(problem, "cuda")
    o, lse = make_outputs(q)
    stream = torch.cuda.current_stream().cuda_stream
    # Once without the profiler, so that nothing is loaded or set up inside the range.
    call(extension, problem, q, k, v, o, lse, stream)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_push(f"{_RANGE}{number}")
    torch.cuda.profiler.start()
    call(extension, problem, q, k, v, o, lse, stream)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    torch.cuda.nvtx.range_pop()
    if not bool(torch.isfinite(o).all()):
        raise LadderError(f"{run.stage} on {problem}: the output is not finite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Launches the runs of a listing, one after the other."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        for number, run in enumerate(read_runs(Path(words[0]))):
            _launch(number, run)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
