"""Runs stages under Nsight Compute, one launch each, and reads their hardware counters as rows of the table.

``collect`` builds the stages, then runs this module as a program under ncu. That program launches each stage
once, between cudaProfilerStart and cudaProfilerStop and inside an NVTX range that names the run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.common import files
from ladder.counts import nsight
from ladder.errors import LadderError, ProfilerError
from ladder.operations import DEFAULT_OPERATION, AnyProblem, Problem, get_operation, memory, operation_of
from ladder.stages import format_options, parse_options

_RANGE = "ladder-run-"


@dataclass(frozen=True)
class Run:
    """A launch to profile: a stage on a problem, with options from its stage.toml."""

    stage: str
    problem: AnyProblem
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
    """Profiles each run on the GPU, and writes ``report`` (.ncu-rep) with the list of runs beside it (.json).

    Raises :class:`LadderError` if a stage does not build or run, or ncu cannot profile here.
    """
    for run in runs:
        _extension(run)
    listing = report.with_suffix(".json")
    files.write(listing, json.dumps([_as_item(run) for run in runs], indent=1).encode())
    words = nsight.command(
        [sys.executable, "-m", "ladder.counts.profiling.runs", str(listing)],
        metrics=metrics,
        sections=sections,
        report=report,
        only_marked=True,
        ncu=ncu or nsight.find_ncu(),
    )
    nsight.run(words, timeout_s=timeout_s)
    if not report.is_file():
        raise ProfilerError("ncu wrote no report", "It says so when it profiled no kernel at all.")


def collect_known(
    runs: Sequence[Run],
    report: Path,
    *,
    metrics: Iterable[str],
    sections: Iterable[str] = (),
    ncu: Path | str | None = None,
) -> list[str]:
    """Like :func:`collect`, but drops the metrics that this ncu does not know and returns them."""
    wanted, refused = list(dict.fromkeys(metrics)), list[str]()
    while True:
        try:
            collect(runs, report, metrics=wanted, sections=sections, ncu=ncu)
            return refused
        except ProfilerError as error:
            # ncu reports one unknown metric at a time.
            unknown = [name for name in wanted if re.search(rf"\b{re.escape(name)}(?!\w)", error.message)]
            if not unknown:
                raise
            refused += unknown
            wanted = [name for name in wanted if name not in unknown]


def read_runs(report: Path) -> list[Run]:
    """The runs that a report was collected from."""
    listing = json.loads(report.with_suffix(".json").read_text())
    return [
        Run(
            item["stage"],
            _problem(item.get("operation", DEFAULT_OPERATION), item["problem"]),
            item["options"],
        )
        for item in listing
    ]


def _as_item(run: Run) -> dict[str, Any]:
    return {
        "stage": run.stage,
        "operation": run.problem.operation,
        "problem": run.problem.text,
        "options": dict(run.options),
    }


def _problem(operation: str, said: str | dict[str, Any]) -> AnyProblem:
    """Reads a problem from text, or from fields as in older listings."""
    kind = get_operation(operation).problem
    return kind.from_text(said) if isinstance(said, str) else kind(**said)


def read_report(report: Path, ncu: Path | str | None = None) -> pd.DataFrame:
    """Reads a report's raw page, with the column ``run``: the index into the list of runs.

    Raises :class:`LadderError`.
    """
    raw = nsight.read_raw(nsight.run(nsight.import_command(report, "raw", ncu=ncu or nsight.find_ncu())))
    return with_run(raw, len(read_runs(report)))


def with_run(raw: pd.DataFrame, runs: int) -> pd.DataFrame:
    """Adds the column ``run`` to the raw page of such a report, and drops launches that belong to no run.

    If ncu shows no NVTX ranges, launches are matched by order, which works if each run is one launch.
    """
    numbers = nsight.ranges(raw, rf"{_RANGE}(\d+)")
    if numbers.isna().all() and len(raw) == runs:
        numbers = pd.Series(range(runs), index=raw.index)
    launches = raw[numbers.notna()].copy()
    launches.insert(0, "run", numbers[numbers.notna()].astype("int64"))
    return launches


def runs_of(raw: pd.DataFrame, report: Path) -> tuple[pd.Series, dict[int, Run]]:
    """Returns the run number of each launch of a raw page (<NA> for foreign launches), and the runs.

    A launch is marked with its run. In older reports the mark is only the number, and the runs come from the
    listing beside the report, if there is one.
    """
    marks = nsight.ranges(raw, rf"({_RANGE}[^\s:\"]+)")
    runs: dict[int, Run] = {}
    for mark in marks.dropna().unique():
        number, run = _unmark(mark)
        if run is not None:
            runs[number] = run
    if not runs and report.with_suffix(".json").is_file():
        runs = dict(enumerate(read_runs(report)))
    numbers = [pd.NA if mark is None else _unmark(mark)[0] for mark in marks]
    return pd.Series(numbers, index=raw.index, dtype="Int64"), runs


def _mark(number: int, run: Run) -> str:
    """The name of the NVTX range around a run's launches: one word that encodes the whole run."""
    problem = run.problem
    words = (run.stage, problem.operation, problem.text, format_options(run.options))
    return f"{_RANGE}{number}/" + "/".join(words)


def _unmark(mark: str) -> tuple[int, Run | None]:
    """Decodes such a name into number and run; the run is None if the name holds only the number."""
    number, *words = mark.removeprefix(_RANGE).split("/")
    if len(words) == 4:
        stage, operation, text, options = words
        return int(number), Run(stage, _problem(operation, text), parse_options(options))
    return int(number), _attention_run(words) if len(words) == 7 else None


def _attention_run(words: Sequence[str]) -> Run:
    """Decodes a name in older reports, which knew only attention."""
    stage, sizes, dtype, mask, scale, inputs, options = words
    batch, heads, kv_heads, q_len, kv_len, head_dim = map(int, sizes.split(","))
    problem = Problem(
        batch,
        heads,
        q_len,
        kv_len,
        head_dim,
        kv_heads=None if kv_heads == heads else kv_heads,
        dtype=dtype or None,
        is_causal=mask == "causal",
        scale=float(scale) if scale else None,
        inputs=inputs,
    )
    return Run(stage, problem, parse_options(options))


def sum_launches(launches: pd.DataFrame) -> pd.DataFrame:
    """Sums the table's counter columns and every metric over the kernels of each run, one row per run."""
    metrics = [name for name in launches.columns if launches[name].dtype == "float64"]
    frame = pd.concat([launches[["run", *metrics]], nsight.counters(launches)], axis=1)
    summed = frame.groupby("run").sum(min_count=1)
    summed.insert(0, "launches", launches.groupby("run").size())
    return summed


def _extension(run: Run) -> Path:
    from ladder.compile import build
    from ladder.run.backends import CudaBackend
    from ladder.stages import discover

    stage = discover()[run.stage]
    return build(stage, CudaBackend().target(stage, None), stage.chosen_options(run.options))


def _launch(number: int, run: Run) -> None:
    import torch

    from ladder.run.backends import call, make_outputs
    from ladder.stages import discover

    problem = discover()[run.stage].accept(run.problem)
    extension = _extension(run)
    inputs = operation_of(problem).make_inputs(problem, "cuda")
    outputs = make_outputs(problem, "cuda")
    stream = torch.cuda.current_stream().cuda_stream
    # Launch once without the profiler, so that nothing is loaded or set up inside the range.
    call(extension, problem, {**inputs, **outputs}, stream)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_push(_mark(number, replace(run, problem=problem)))
    torch.cuda.profiler.start()
    call(extension, problem, {**inputs, **outputs}, stream)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    torch.cuda.nvtx.range_pop()
    for name, tensor in outputs.items():
        if not bool(torch.isfinite(tensor).all()):
            raise LadderError(f"{run.stage} on {problem}: {name} is not finite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Launches the runs of a listing one after another."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        for number, run in enumerate(read_runs(Path(words[0]))):
            with memory.guarded(run.problem):
                _launch(number, run)
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
