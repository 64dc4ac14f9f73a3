"""The speed of every rung on the GPU that is there, beside torch's own attention, all in one run.

Each contender's output is checked on two heads first; then all are timed as ``ladder.timing`` does it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ladder import files, memory, timing
from ladder.backends import get_backend
from ladder.backends.base import call, make_outputs
from ladder.build import build_all
from ladder.errors import LadderError, UnsupportedProblem
from ladder.inputs import make_inputs
from ladder.machine import environment
from ladder.problem import Problem, parse_dtype
from ladder.progress import steps
from ladder.reference import reference
from ladder.stages import Stage, discover, stage_and_options
from ladder.timing import Inputs, Timing

#: What the figures in results/ are of.
PROBLEMS = (
    Problem(4, 16, 1024, 1024, 64, dtype="f32"),
    *(
        Problem(4, 16, 4096, 4096, head_dim, dtype="bf16", is_causal=is_causal)
        for head_dim in (64, 128)
        for is_causal in (False, True)
    ),
    Problem(4, 16, 1024, 1024, 64, dtype="f16"),
    Problem(4, 16, 1024, 1024, 128, dtype="f16"),
    Problem(4, 16, 4096, 4096, 128, dtype="f16"),
)

MATMUL = "torch matmul"

_SECONDS = 0.4  # of measuring, a contender and problem
_CHECKED_HEADS = 2


def measure(problems: Sequence[Problem] = PROBLEMS, stages: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a contender and problem, with the ratio of its speed to torch's flash and cuDNN backends.

    Columns: the environment, ``contender``, B H Hkv N M d dtype causal, ``time_ms`` (median) with
    ``time_ms_p10`` and ``time_ms_p90``, ``runs``, ``tflops``, ``of_matmul`` (share of the rate of a bf16
    matrix product measured in the same run), ``of_flash`` and ``of_cudnn`` (speed as a multiple of theirs),
    ``error``, ``error_bound``, ``passed``.

    ``stages`` may hold a stage several times with options: ``"v4_tk_tiles:ROWS=32,KEYS=64"``.
    Raises :class:`LadderError` when there is no GPU or nothing takes a problem.
    """
    here = get_backend("cuda")
    specs = list(stages) if stages is not None else [stage.name for stage in discover()]
    found = {spec: stage_and_options(spec) for spec in specs}
    chosen = [replace(stage, name=spec) for spec, (stage, _) in found.items()]
    options = {spec: values for spec, (_, values) in found.items()}
    targets = {stage.name: here.target(stage, None) for stage in chosen}
    extensions = build_all(chosen, targets, options)
    for built in extensions.values():
        if isinstance(built, LadderError):
            raise built

    rows: list[dict[str, Any]] = []
    matmul = timing.matmul()
    matmul_tflops = matmul.tflops(timing.MATMUL_FLOPS)
    with steps("Measuring", len(problems)) as progress:
        for problem in problems:
            with progress.step(str(problem)), memory.guarded(problem):
                runs: dict[str, Callable[[Inputs], Tensor]] = {}
                for stage in chosen:
                    run = _stage_run(extensions[stage.name], problem)
                    if _takes(stage, run, problem):
                        runs[stage.name] = run
                if not runs:
                    raise UnsupportedProblem(f"no stage takes {problem}")
                rows += _measure_problem(problem, runs, matmul_tflops)
    product = {"contender": MATMUL, "dtype": "bf16", "tflops": matmul_tflops, "of_matmul": 1.0}
    frame = pd.DataFrame([{**product, **_times(matmul)}, *rows])
    for column, value in reversed(environment().items()):
        frame.insert(0, column, value)
    integers = ["B", "H", "Hkv", "N", "M", "d", "runs"]
    return frame.astype(dict.fromkeys(integers, "Int64"))


def _takes(stage: Stage, run: Callable[[Inputs], Tensor], problem: Problem) -> bool:
    """Options may leave no room for a head dim, which only the kernel's host code knows."""
    try:
        stage.accept(problem)
        run(make_inputs(problem, "cuda"))
    except UnsupportedProblem:
        return False
    return True


def _stage_run(extension: Any, problem: Problem) -> Callable[[Inputs], Tensor]:
    def run(inputs: Inputs) -> Tensor:
        o, lse = torch.empty_like(inputs[0]), torch.empty(inputs[0].shape[:3], device="cuda")
        call(extension, problem, *inputs, o, lse, torch.cuda.current_stream().cuda_stream)
        return o

    return run


def _measure_problem(
    problem: Problem, runs: dict[str, Callable[[Inputs], Tensor]], matmul_tflops: float
) -> list[dict[str, Any]]:
    sets = timing.input_sets(make_inputs(problem, "cuda"))
    group = problem.heads // problem.num_kv_heads
    runs = {**runs, **timing.torch_runs(problem, sets[0])}
    q, k, v = sets[0]
    kv_heads = math.ceil(_CHECKED_HEADS / group)
    bounds = reference(
        q[:1, :_CHECKED_HEADS],
        k[:1, :kv_heads],
        v[:1, :kv_heads],
        is_causal=problem.is_causal,
        scale=problem.softmax_scale,
    )
    errors = {}
    for name, run in runs.items():
        make_outputs(q)  # NaN where the next allocation of this size will be
        errors[name] = bounds.error(run(sets[0])[:1, :_CHECKED_HEADS])
    timings = timing.measure(runs, sets, _SECONDS)
    tflops = {name: timed.tflops(problem.flops) for name, timed in timings.items()}
    return [
        {
            "contender": name,
            "B": problem.batch,
            "H": problem.heads,
            "Hkv": problem.num_kv_heads,
            "N": problem.q_len,
            "M": problem.kv_len,
            "d": problem.head_dim,
            "dtype": problem.dtype,
            "causal": problem.is_causal,
            **_times(timed),
            "tflops": tflops[name],
            "of_matmul": tflops[name] / matmul_tflops,
            "of_flash": _ratio(tflops, name, "torch flash"),
            "of_cudnn": _ratio(tflops, name, "torch cuDNN"),
            "error": errors[name],
            "error_bound": bounds.error_bound,
            "passed": errors[name] <= bounds.error_bound,
        }
        for name, timed in timings.items()
    ]


def _times(timed: Timing) -> dict[str, float]:
    spread = {"time_ms_p10": timed.p10_ms, "time_ms_p90": timed.p90_ms}
    return {"time_ms": timed.median_ms, **spread, "runs": timed.runs}


def _ratio(tflops: dict[str, float], name: str, to: str) -> float | None:
    return tflops[name] / tflops[to] if to in tflops else None


def render(frame: pd.DataFrame) -> Table:
    """The measured rows as a table, problem by problem."""
    table = Table(title=f"{frame.gpu[0]}, {frame.compiler[0]}, torch {frame.torch[0]}, {frame.date[0]}")
    for name, justify in (
        ("problem", "left"),
        ("", "left"),
        ("ms", "right"),
        ("10-90 %", "right"),
        ("TFLOP/s", "right"),
        ("of matmul", "right"),
        ("of flash", "right"),
        ("of cuDNN", "right"),
        ("right", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    before = ""
    for _, row in frame.iterrows():
        problem = ""
        if row.contender != MATMUL:
            causal = " causal" if row.causal else ""
            problem = f"B{row.B} H{row.H} N{row.N} M{row.M} d{row.d} {row['dtype']}{causal}"
        if problem != before:
            table.add_section()
        spread = f"{row.time_ms_p10:.3f}-{row.time_ms_p90:.3f}" if pd.notna(row.time_ms_p10) else ""
        ratios = [f"{row[c]:.2f}" if pd.notna(row[c]) else "" for c in ("of_matmul", "of_flash", "of_cudnn")]
        right = "" if pd.isna(row.passed) else "yes" if row.passed else "NO"
        shown = problem if problem != before else ""
        before = problem
        table.add_row(shown, row.contender, f"{row.time_ms:.3f}", spread, f"{row.tflops:.1f}", *ratios, right)
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the rows as CSV, too")
    parser.add_argument("--stages", nargs="+", metavar="STAGE", help="default: all")
    parser.add_argument(
        "--problem", action="append", metavar="B,H,N,M,d", help="instead of the default ones; may be repeated"
    )
    parser.add_argument("--dtype", default="bf16", help="of --problem (default: bf16)")
    parser.add_argument("--causal", action="store_true", help="of --problem")


def main(options: argparse.Namespace) -> int:
    """Measures, prints the table and writes the CSV; 1 when a stage's output is wrong."""
    problems: Sequence[Problem] = PROBLEMS
    if options.problem:
        problems = [
            Problem.parse(text, dtype=parse_dtype(options.dtype), is_causal=options.causal)
            for text in options.problem
        ]
        for problem in problems:
            memory.require(problem, logits=False)
    if options.out is not None:
        files.require_target(options.out)
    frame = measure(problems, options.stages)
    if options.out is not None:
        files.write(options.out, frame.to_csv(index=False, float_format="%.6g").encode())
    Console().print(render(frame))
    return 0 if frame.passed.dropna().all() else 1
