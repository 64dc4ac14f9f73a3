"""The speed of every rung on the GPU that is there, beside torch's own attention, all in one run.

Times are of one launch between two CUDA events: after a warm-up, over inputs that together are larger than
twice the L2, in rounds that take the contenders in turn, so that a change of clocks meets all of them. The
median is reported with the 10th and 90th percentile. Each contender's output is checked on two heads first.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ladder.backends import get_backend
from ladder.backends.base import call, make_outputs
from ladder.build import build_all
from ladder.errors import InvalidProblem, LadderError, UnsupportedProblem
from ladder.inputs import make_inputs
from ladder.machine import environment
from ladder.problem import Problem
from ladder.progress import steps
from ladder.reference import Reference, reference
from ladder.stages import discover

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

#: torch's attention by the backend that computes it.
TORCH_BACKENDS = {
    "torch flash": SDPBackend.FLASH_ATTENTION,
    "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
    "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
}
MATMUL = "torch matmul"

_MATMUL_SIZE = 8192
_ROUNDS = 5
_SECONDS = 0.4  # of measuring, a contender and problem
_CHECKED_HEADS = 2

Inputs = tuple[Tensor, Tensor, Tensor]
RunOnce = Callable[[Inputs], Tensor]


@dataclass
class _Contender:
    name: str
    run: RunOnce
    times_ms: list[float] = field(default_factory=list)
    error: float = math.nan


def measure(problems: Sequence[Problem] = PROBLEMS, stages: Sequence[str] | None = None) -> pd.DataFrame:
    """One row a contender and problem, with the ratio of its speed to torch's flash and cuDNN backends.

    Columns: the environment, ``contender``, B H Hkv N M d dtype causal, ``time_ms`` (median) with
    ``time_ms_p10`` and ``time_ms_p90``, ``runs``, ``tflops``, ``of_matmul`` (share of the rate of a bf16
    matrix product measured in the same run), ``of_flash`` and ``of_cudnn`` (speed as a multiple of theirs),
    ``error``, ``error_bound``, ``passed``.

    Raises :class:`LadderError` when there is no GPU or nothing takes a problem.
    """
    here = get_backend("cuda")
    names = list(stages) if stages is not None else [stage.name for stage in discover()]
    chosen = [discover()[name] for name in names]
    targets = {stage.name: here.target(stage, None) for stage in chosen}
    extensions = build_all(chosen, targets)
    for built in extensions.values():
        if isinstance(built, LadderError):
            raise built

    rows: list[dict[str, Any]] = []
    matmul_tflops = _matmul_tflops()
    with steps("Measuring", len(problems)) as progress:
        for problem in problems:
            with progress.step(str(problem)):
                contenders = []
                for stage in chosen:
                    try:
                        stage.accept(problem)
                    except UnsupportedProblem:
                        continue
                    contenders.append(_Contender(stage.name, _stage_run(extensions[stage.name], problem)))
                if not contenders:
                    raise UnsupportedProblem(f"no stage takes {problem}")
                contenders += _torch_contenders(problem)
                rows += _measure_problem(problem, contenders, matmul_tflops)
    matmul = {"contender": MATMUL, "dtype": "bf16", "tflops": matmul_tflops, "of_matmul": 1.0}
    matmul |= {"time_ms": 2e-9 * _MATMUL_SIZE**3 / matmul_tflops}
    frame = pd.DataFrame([matmul, *rows])
    for column, value in reversed(environment().items()):
        frame.insert(0, column, value)
    integers = ["B", "H", "Hkv", "N", "M", "d", "runs"]
    return frame.astype(dict.fromkeys(integers, "Int64"))


def _stage_run(extension: Any, problem: Problem) -> RunOnce:
    def run(inputs: Inputs) -> Tensor:
        o, lse = torch.empty_like(inputs[0]), torch.empty(inputs[0].shape[:3], device="cuda")
        call(extension, problem, *inputs, o, lse, torch.cuda.current_stream().cuda_stream)
        return o

    return run


def _torch_contenders(problem: Problem) -> list[_Contender]:
    """Those of torch's backends that take the problem."""
    q, k, v = make_inputs(replace(problem, batch=1, heads=1, kv_heads=1, q_len=64, kv_len=64), "cuda")
    found = []
    for name, backend in TORCH_BACKENDS.items():

        def run(inputs: Inputs, backend: SDPBackend = backend) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    *inputs, is_causal=problem.is_causal, scale=problem.scale
                )

        try:
            run((q, k, v))
        except RuntimeError:
            continue
        found.append(_Contender(name, run))
    return found


def _input_sets(problem: Problem) -> list[Inputs]:
    """As many as fill the L2 twice, at least two; all but the first are shuffles of it along the sequence."""
    first = make_inputs(problem, "cuda")
    l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    set_bytes = sum(tensor.nbytes for tensor in first)
    count = max(2, math.ceil(2 * l2_bytes / set_bytes))
    rolled = [(first[0].roll(i, 2), first[1].roll(i, 2), first[2].roll(i, 2)) for i in range(1, count)]
    return [first, *rolled]


def _check(contender: _Contender, problem: Problem, inputs: Inputs, bounds: Reference) -> None:
    make_outputs(inputs[0])  # NaN where the next allocation of this size will be
    contender.error = bounds.error(contender.run(inputs)[:1, :_CHECKED_HEADS])


def _measure_problem(
    problem: Problem, contenders: list[_Contender], matmul_tflops: float
) -> list[dict[str, Any]]:
    sets = _input_sets(problem)
    group = problem.heads // problem.num_kv_heads
    q, k, v = sets[0]
    kv_heads = math.ceil(_CHECKED_HEADS / group)
    bounds = reference(
        q[:1, :_CHECKED_HEADS],
        k[:1, :kv_heads],
        v[:1, :kv_heads],
        is_causal=problem.is_causal,
        scale=problem.softmax_scale,
    )
    counts = {}
    for contender in contenders:
        _check(contender, problem, sets[0], bounds)
        warm = min(_time_ms(contender.run, inputs) for inputs in sets[:3])
        counts[contender.name] = max(2, min(50, math.ceil(_SECONDS * 1e3 / _ROUNDS / max(warm, 1e-3))))
    for turn in range(_ROUNDS):
        for contender in contenders:
            for i in range(counts[contender.name]):
                inputs = sets[(turn + i) % len(sets)]
                contender.times_ms.append(_time_ms(contender.run, inputs))
    tflops = {c.name: problem.flops / _quantile(c.times_ms, 0.5) * 1e-9 for c in contenders}
    return [
        {
            "contender": contender.name,
            "B": problem.batch,
            "H": problem.heads,
            "Hkv": problem.num_kv_heads,
            "N": problem.q_len,
            "M": problem.kv_len,
            "d": problem.head_dim,
            "dtype": problem.dtype,
            "causal": problem.is_causal,
            "time_ms": _quantile(contender.times_ms, 0.5),
            "time_ms_p10": _quantile(contender.times_ms, 0.1),
            "time_ms_p90": _quantile(contender.times_ms, 0.9),
            "runs": len(contender.times_ms),
            "tflops": tflops[contender.name],
            "of_matmul": tflops[contender.name] / matmul_tflops,
            "of_flash": _ratio(tflops, contender.name, "torch flash"),
            "of_cudnn": _ratio(tflops, contender.name, "torch cuDNN"),
            "error": contender.error,
            "error_bound": bounds.error_bound,
            "passed": contender.error <= bounds.error_bound,
        }
        for contender in contenders
    ]


def _time_ms(run: Callable[[Any], object], inputs: Any) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run(inputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def _matmul_tflops() -> float:
    """The rate of a bf16 matrix product of 8192 x 8192 x 8192 on random data."""
    a, b = (torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = [_time_ms(lambda x: x[0] @ x[1], (a, b)) for _ in range(30)][5:]
    return 2e-9 * _MATMUL_SIZE**3 / _quantile(times, 0.5)


def _quantile(values: Iterable[float], q: float) -> float:
    return float(pd.Series(list(values)).quantile(q))


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
            Problem.parse(text, dtype=options.dtype, is_causal=options.causal) for text in options.problem
        ]
    if options.out is not None and not options.out.parent.is_dir():
        raise InvalidProblem(f"{options.out.parent} is no folder")
    frame = measure(problems, options.stages)
    if options.out is not None:
        frame.to_csv(options.out, index=False, float_format="%.6g")
    Console().print(render(frame))
    return 0 if frame.passed.dropna().all() else 1
