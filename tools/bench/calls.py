"""What a call costs on the host, beside torch's: ``ladder.attention`` and ``ladder.hstu_attention`` as users
call them, and the launches alone.

The host's time is that of a call while the GPU still computes; the speed is that of calls one after another.
With the backward pass, ``autograd alone`` is a torch.autograd.Function of as many tensors that computes
nothing: what torch takes for any function written in Python. ``q * k`` is what it takes for a function of its
own in C++, with three small kernels. ``results/h200/calls.csv`` has the rows of an
H200.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import ladder
from ladder.call import Choices, gradient_inputs, inputs_of, prepared, prepared_gradients
from ladder.common import files
from ladder.common.progress import steps
from ladder.errors import LadderError
from ladder.operations import Problem
from tools.bench.provenance import measured_on

#: Most calls in a row, and how long they take at most; a GPU's queue holds about a thousand launches, of
#: which backward has up to six a call.
_CALLS, _ROUND_US = 100, 20_000
_FEWEST_CALLS = 10
_ROUNDS = 9
_SIZES = (
    *((batch, 16, n, d) for d in (64, 128) for n in (128, 256, 512, 1024) for batch in (1, 16, 64)),
    *((4, 16, 4096, d) for d in (64, 128)),
)

#: Contenders that compute something else.
_NO_ATTENTION = ("autograd alone", "q * k")

Call = Callable[[], object]


def attention_calls(problem: Problem, *, with_gradient: bool) -> dict[str, Call]:
    """Calls of the same attention by contender, forward alone or with the backward pass; the raw launches are
    of prepared runs, with outputs allocated.
    """
    shape = (problem.batch, problem.heads, problem.q_len, problem.head_dim)
    q, k, v = (
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=with_gradient) for _ in range(3)
    )
    d_o = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    causal = problem.is_causal

    def torchs(backend: SDPBackend) -> Callable[[], Tensor]:
        def call() -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    stage = [one.name for one in ladder.discover().computing("attention") if one.suits(problem)][-1]
    calls: dict[str, Callable[[], Tensor]] = {
        "ladder auto": lambda: ladder.attention(q, k, v, is_causal=causal)[0],
        f"ladder {stage}": lambda: ladder.attention(q, k, v, is_causal=causal, stage=stage)[0],
        "torch auto": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        "torch flash": torchs(SDPBackend.FLASH_ATTENTION),
        "torch cuDNN": torchs(SDPBackend.CUDNN_ATTENTION),
    }
    if not with_gradient:
        return {**calls, "launch alone": _launch_alone(q, k, v, causal)}
    calls["autograd alone"] = lambda: _Nothing.apply(q, k, v)[0]
    return {
        **{name: _with_gradient(call, (q, k, v), d_o) for name, call in calls.items()},
        "q * k": _with_gradient(lambda: q * k, (q, k), d_o),
        "launches alone": _launches_alone(q, k, v, d_o, causal),
    }


def _with_gradient(call: Callable[[], Tensor], leaves: Sequence[Tensor], d_o: Tensor) -> Call:
    return lambda: torch.autograd.grad(call(), leaves, d_o)


def _launch_alone(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Call:
    run = prepared(q, k, v, None, Choices(is_causal))
    tensors = [*inputs_of(q, k, v), *run.empty_outputs()]
    return lambda: run.launch(tensors)


def _launches_alone(q: Tensor, k: Tensor, v: Tensor, d_o: Tensor, is_causal: bool) -> Call:
    """Of the forward and of the backward pass."""
    q, k, v = (x.detach() for x in (q, k, v))
    o, lse = ladder.attention(q, k, v, is_causal=is_causal)
    inputs = gradient_inputs(q, k, v, None, o, lse, d_o, None)
    run = prepared_gradients(inputs, Choices(is_causal))
    forward, tensors = _launch_alone(q, k, v, is_causal), [*inputs, *run.empty_outputs()]

    def call() -> None:
        forward()
        run.launch(tensors)

    return call


class _Nothing(torch.autograd.Function):
    """As many tensors as attention's, without a launch."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        o, lse = torch.empty_like(query), query.new_empty(query.shape[:3], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, o, lse)
        return o, lse

    @staticmethod
    def backward(ctx: Any, d_o: Tensor, d_lse: Tensor) -> tuple[Tensor, ...]:
        del d_o, d_lse
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors[:3])


def hstu_calls(*, with_gradient: bool) -> dict[str, Call]:
    """A call of ``ladder.hstu_attention`` on 16 sequences of 256 tokens."""
    offsets = torch.arange(0, 17 * 256, 256, dtype=torch.int32, device="cuda")
    leaves = [
        torch.randn(4096, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=with_gradient)
        for _ in range(3)
    ]
    d_o = torch.randn(4096, 4, 64, device="cuda", dtype=torch.bfloat16)

    def call() -> Tensor:
        query, key, value = leaves
        return ladder.hstu_attention(query, key, value, offsets)

    return {"ladder hstu": _with_gradient(call, leaves, d_o) if with_gradient else call}


def measure(calls: Mapping[str, Call]) -> dict[str, tuple[float, float, float, float]]:
    """By contender: the microseconds of a call on the host, median with the 10th and 90th percentile of
    rounds, and of a call when many follow each other, the GPU's work included. Contenders take turns.
    """
    counts = {name: _count(call) for name, call in calls.items()}
    host: dict[str, list[float]] = {name: [] for name in calls}
    whole: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name in random.sample([*calls], len(calls)):
            queued, done = _time_us(calls[name], counts[name])
            host[name].append(queued)
            whole[name].append(done)
    return {name: (*_spread(host[name]), statistics.median(whole[name])) for name in calls}


def _time_us(call: Call, count: int) -> tuple[float, float]:
    """The microseconds of a call until all are in the queue, and until all are done."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    queued = time.perf_counter()
    torch.cuda.synchronize()
    return (queued - begin) * 1e6 / count, (time.perf_counter() - begin) * 1e6 / count


def _count(call: Call) -> int:
    """How many calls make a round."""
    _time_us(call, 2)
    _, done = _time_us(call, _FEWEST_CALLS)
    return max(_FEWEST_CALLS, min(_CALLS, int(_ROUND_US / done)))


def _spread(times: Sequence[float]) -> tuple[float, float, float]:
    tenths = statistics.quantiles(times, n=10)
    return statistics.median(times), tenths[0], tenths[-1]


def rows(problem: Problem | None, *, with_gradient: bool) -> list[dict[str, Any]]:
    """A row for each contender; ``problem`` None is HSTU's."""
    calls = (
        hstu_calls(with_gradient=with_gradient)
        if problem is None
        else attention_calls(problem, with_gradient=with_gradient)
    )
    flops = 0.0 if problem is None else problem.flops * (3.5 if with_gradient else 1.0)
    return [
        {
            "problem": "hstu" if problem is None else str(problem),
            "pass": "forward and backward" if with_gradient else "forward",
            "contender": name,
            "host_us": found[0],
            "host_us_p10": found[1],
            "host_us_p90": found[2],
            "call_us": found[3],
            "tflops": flops / found[3] * 1e-6 if flops and name not in _NO_ATTENTION else None,
        }
        for name, found in measure(calls).items()
    ]


def render(frame: pd.DataFrame) -> Group:
    """The rows in tables of less than 80 columns, one per problem and pass."""
    title = f"{frame.gpu[0]}, {frame.compiler[0]}, torch {frame.torch[0]}, {frame.date[0]}"
    tables = [
        _table(f"{problem}, {of_pass}", same)
        for (problem, of_pass), same in frame.groupby(["problem", "pass"], sort=False)
    ]
    return Group(title, *tables)


def _table(title: str, rows: pd.DataFrame) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", min_width=23, no_wrap=True)
    for name in ("host us", "10-90 %", "us per call", "TFLOP/s"):
        table.add_column(name, justify="right", min_width=9, no_wrap=True)
    for _, row in rows.iterrows():
        speed = "" if pd.isna(row.tflops) else f"{row.tflops:.1f}"
        spread = f"{row.host_us_p10:.1f}-{row.host_us_p90:.1f}"
        table.add_row(row.contender, f"{row.host_us:.1f}", spread, f"{row.call_us:.1f}", speed)
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the rows as CSV")


def main(options: argparse.Namespace) -> int:
    """Measures, prints the table and writes the CSV."""
    if not torch.cuda.is_available():
        raise LadderError("torch sees no CUDA GPU, whose queue this measures", "ladder doctor says more.")
    if options.out is not None:
        files.require_target(options.out)
    problems = [
        Problem(batch, heads, n, n, d, dtype="bf16", is_causal=causal)
        for batch, heads, n, d in _SIZES
        for causal in (False, True)
    ]
    found: list[dict[str, Any]] = []
    origin = measured_on()
    with steps("Measuring", len(problems) + 1) as progress:
        for problem in (None, *problems):
            with progress.step(str(problem or "hstu")):
                for with_gradient in (False, True):
                    found += ({**origin, **row} for row in rows(problem, with_gradient=with_gradient))
            frame = pd.DataFrame(found)
            if options.out is not None:  # now, so that a run that is cut off leaves what it measured
                files.write(options.out, frame.to_csv(index=False, float_format="%.5g").encode())
    Console().print(render(frame))
    return 0
