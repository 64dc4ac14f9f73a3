"""Times every rung on this machine's GPU beside torch's implementations, all in one run. Each contender's
first output is checked on part of the problem before :mod:`ladder.run.backends.timing` times them all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import ladder
from ladder.common import files
from ladder.common.progress import steps
from ladder.compile import build_all
from ladder.errors import LadderError, UnsupportedProblem
from ladder.operations import (
    DEFAULT_OPERATION,
    AnyProblem,
    Operation,
    Problem,
    Tensors,
    get_operation,
    memory,
    operation_of,
    parse_dtype,
)
from ladder.run.backends import Timing, call, get_backend, make_outputs, timing
from ladder.stages import Stage, discover, stage_and_options
from tools.bench.provenance import measured_on

MATMUL = "torch matmul"

_SECONDS = 0.4  # of measuring, a contender and problem

#: Launches once and returns the first output.
Run = Callable[[Any], Tensor]


def measure(
    problems: Sequence[AnyProblem] | None = None,
    stages: Sequence[str] | None = None,
    *,
    called: bool = False,
) -> pd.DataFrame:
    """Measures one row per contender and problem, with its speed relative to torch's.

    The defaults are the operation's benchmark problems and all of its rungs.

    Columns: the environment, ``contender``, those of the problem, ``time_ms`` (median) with ``time_ms_p10``
    and ``time_ms_p90``, ``runs``, ``tflops``, ``of_matmul`` (share of the rate of a bf16 matrix product
    measured in the same run), ``of_<name>`` (speed as a multiple of torch's), ``error``, ``error_bound``,
    ``passed``; with ``called``, also ``called_tflops``, the speed of a rung of attention through
    :func:`ladder.attention`, which then is built a second time, for all of its problems.

    ``stages`` may hold a stage several times with options: ``"my_rung:ROWS=32,KEYS=64"``. Raises
    :class:`LadderError` without a GPU, or if no contender takes a problem.
    """
    return pd.concat([*measure_each(problems, stages, called=called)], ignore_index=True)


def measure_each(
    problems: Sequence[AnyProblem] | None = None,
    stages: Sequence[str] | None = None,
    *,
    called: bool = False,
) -> Iterator[pd.DataFrame]:
    """The rows of :func:`measure`, problem by problem; the first ones with that of the matrix product."""
    ladder = discover()
    operation = _operation(problems, stages)
    problems = problems or operation.bench_problems
    here = get_backend("cuda")
    specs = list(stages) if stages is not None else [stage.name for stage in ladder.computing(operation.name)]
    chosen, options = [], {}
    for spec in specs:
        stage, values = stage_and_options(spec)
        if measured := [*filter(stage.suits, problems)]:
            narrowed = stage.narrowed(measured)  # compiles in a fraction of the time
            chosen.append(replace(narrowed, name=spec))
            options[spec] = {**narrowed.chosen_options({}), **values}
    targets = {stage.name: here.target(stage, None) for stage in chosen}
    extensions = build_all(chosen, targets, options)
    for built in extensions.values():
        if isinstance(built, LadderError):
            raise built

    where, matmul = measured_on(), timing.matmul()
    matmul_tflops = matmul.tflops(timing.MATMUL_FLOPS)
    rows: list[dict[str, Any]] = [
        {"contender": MATMUL, "dtype": "bf16", "tflops": matmul_tflops, "of_matmul": 1.0, **_times(matmul)}
    ]
    with steps("Measuring", len(problems)) as progress:
        for problem in problems:
            with progress.step(str(problem)), memory.guarded(problem):
                inputs = _inputs(problem)
                runs: dict[str, Run] = {}
                for stage in chosen:
                    run = _stage_run(extensions[stage.name], problem)
                    if _takes(stage, run, problem, inputs):
                        runs[stage.name] = run
                if not runs:
                    raise UnsupportedProblem(f"no stage takes {problem}")
                calls = {name: _call(name, problem) for name in runs} if called else {}
                rows += _measure_problem(problem, inputs, runs, calls, matmul_tflops)
            yield _frame(rows, where, operation)
            rows = []


def _frame(rows: Sequence[dict[str, Any]], where: dict[str, str], operation: Operation) -> pd.DataFrame:
    frame = pd.DataFrame([{**where, **row} for row in rows])
    integers = [*(name for name, kind in operation.columns.items() if kind == "Int64"), "runs"]
    return frame.astype(dict.fromkeys(integers, "Int64"))


def _operation(problems: Sequence[AnyProblem] | None, stages: Sequence[str] | None) -> Operation:
    if problems:
        return operation_of(problems[0])
    return get_operation(stage_and_options(stages[0])[0].computes if stages else DEFAULT_OPERATION)


def _inputs(problem: AnyProblem) -> Tensors:
    return operation_of(problem).make_inputs(problem, "cuda")


def _takes(stage: Stage, run: Run, problem: AnyProblem, inputs: Tensors) -> bool:
    """Whether the stage takes the problem. Its options may not suit a head dim, which only its host code
    knows.
    """
    try:
        stage.accept(problem)
        run(inputs)
    except UnsupportedProblem:
        return False
    return True


def _stage_run(extension: Any, problem: AnyProblem) -> Run:
    """Wraps a stage's launch as a :data:`Run`."""
    first = operation_of(problem).output_names[0]

    def run(inputs: Tensors) -> Tensor:
        outputs = make_outputs(problem, "cuda", filled=False)
        call(extension, problem, {**inputs, **outputs}, torch.cuda.current_stream().cuda_stream)
        return outputs[first]

    return run


def _call(spec: str, problem: AnyProblem) -> Run:
    """The same by a user's call of :func:`ladder.attention`. Raises :class:`LadderError` for a problem that
    it has no arguments for.
    """
    if type(problem) is not Problem or problem.q_lens is not None:
        raise LadderError("only rungs of attention on batches are measured through ladder.attention")
    stage, options = stage_and_options(spec)
    arguments: dict[str, Any] = {
        "is_causal": problem.is_causal,
        "scale": problem.scale,
        "enable_gqa": True,
        "window_size": problem.window or (-1, -1),
        "softcap": problem.softcap,
        "stage": stage.name,
        "options": options,
    }

    def run(inputs: Any) -> Tensor:
        q, k, v = (inputs[name] for name in "qkv")
        o, _ = ladder.attention(q, k, v, sinks=inputs["sinks"], **arguments)
        return o

    return run


def _measure_problem(
    problem: AnyProblem, inputs: Tensors, runs: dict[str, Run], calls: dict[str, Run], matmul_tflops: float
) -> list[dict[str, Any]]:
    operation = operation_of(problem)
    first = operation.output_names[0]
    sets = timing.input_sets(problem, inputs)
    baselines = operation.baselines(problem, sets[0])
    runs = {**runs, **baselines}
    expected = operation.reference(*operation.part(problem, sets[0]))
    bound, errors, passed = expected.bounds[first], {}, {}
    for name, run in runs.items():
        make_outputs(problem, "cuda")  # NaN where the next allocation of this size will be
        _, outputs = operation.part(problem, {first: run(sets[0])})
        deviation = expected.deviation(first, outputs[first])
        errors[name], passed[name] = deviation.largest, deviation.is_allowed
        if name in baselines:
            # A library's gradients are made of its own o, and it need not take the steps that the limits of
            # single elements are derived from.
            passed[name] = deviation.largest <= bound
    through_calls = {f"{name} called": call for name, call in calls.items()}
    timings = timing.measure({**runs, **through_calls}, sets, _SECONDS)
    called = {name: timings.pop(f"{name} called").tflops(problem.flops) for name in calls}
    tflops = {name: timed.tflops(problem.flops) for name, timed in timings.items()}
    return [
        {
            "contender": name,
            **operation.row(problem),
            **_times(timed),
            "tflops": tflops[name],
            **({"called_tflops": called.get(name)} if called else {}),
            "of_matmul": tflops[name] / matmul_tflops,
            **{_ratio_column(baseline): tflops[name] / tflops[baseline] for baseline in baselines},
            "error": errors[name],
            "error_bound": bound,
            "passed": passed[name],
        }
        for name, timed in timings.items()
    ]


def _times(timed: Timing) -> dict[str, float]:
    spread = {"time_ms_p10": timed.p10_ms, "time_ms_p90": timed.p90_ms}
    return {"time_ms": timed.median_ms, **spread, "runs": timed.runs}


def _ratio_column(baseline: str) -> str:
    """The column's name, such as ``of_cudnn`` for torch cuDNN."""
    return "of_" + baseline.removeprefix("torch ").lower()


def render(frame: pd.DataFrame, operation: Operation) -> Table:
    """The measured rows as a table, problem by problem."""
    ratios = [column for column in frame.columns if column.startswith("of_")]
    speeds = {"tflops": "TFLOP/s", "called_tflops": "called"}
    shown_speeds = [column for column in speeds if column in frame]
    table = Table(title=f"{frame.gpu[0]}, {frame.compiler[0]}, torch {frame.torch[0]}, {frame.date[0]}")
    table.add_column("problem", min_width=20)
    table.add_column("", no_wrap=True)
    names = (*(speeds[column] for column in shown_speeds), *(column.replace("_", " ") for column in ratios))
    for name in ("ms", "10-90 %", *names, "right"):
        table.add_column(name, justify="right", no_wrap=True)
    before = ""
    for _, row in frame.iterrows():
        problem = "" if row.contender == MATMUL else f"{operation.title_of(dict(row))} {row['dtype']}"
        if problem != before:
            table.add_section()
        spread = f"{row.time_ms_p10:.3f}-{row.time_ms_p90:.3f}" if pd.notna(row.time_ms_p10) else ""
        measured = [f"{row[column]:.1f}" if pd.notna(row[column]) else "" for column in shown_speeds]
        shares = [f"{row[column]:.2f}" if pd.notna(row[column]) else "" for column in ratios]
        right = "" if pd.isna(row.passed) else "yes" if row.passed else "NO"
        shown = problem if problem != before else ""
        before = problem
        table.add_row(shown, row.contender, f"{row.time_ms:.3f}", spread, *measured, *shares, right)
    return table


def write(frames: Sequence[pd.DataFrame], out: Path) -> None:
    """Writes what was measured so far, so that a run that is stopped keeps it."""
    files.write(out, pd.concat(frames).to_csv(index=False, float_format="%.6g").encode())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the rows as CSV")
    parser.add_argument("--stages", nargs="+", metavar="STAGE", help="default: all that compute attention")
    parser.add_argument(
        "--problem", action="append", metavar="SIZES", help="instead of the default ones; may be repeated"
    )
    parser.add_argument("--dtype", default="bf16", help="of --problem (default: bf16)")
    parser.add_argument("--causal", action="store_true", help="of --problem")
    parser.add_argument(
        "--called", action="store_true", help="also through ladder.attention: a column with that speed"
    )


def main(options: argparse.Namespace) -> int:
    """Measures, prints the table and writes the CSV; returns 1 if a stage's output is wrong."""
    operation = _operation(None, options.stages)
    fields = {"dtype": parse_dtype(options.dtype), **({"is_causal": True} if options.causal else {})}
    problems = [operation.parse(text, **fields) for text in options.problem or ()]
    for problem in problems:
        memory.require(problem)
    if options.out is not None:
        files.require_target(options.out)
    frames: list[pd.DataFrame] = []
    for rows in measure_each(problems, options.stages, called=options.called):
        frames.append(rows)
        if options.out is not None:
            write(frames, options.out)
    frame = pd.concat(frames, ignore_index=True)
    Console().print(render(frame, operation))
    return 0 if frame.passed.dropna().all() else 1
