#!/usr/bin/env python3
"""Measures the fastest rungs of attention and of its gradients beside other implementations of both.

    python3 results/measure_peers.py --out results/h200 [--rounds 9] [--seconds 400] [--pass forward backward]
        [--rungs STAGE ...] [--fa3-library PATH]

Writes ``peers.csv`` after each problem: one row per contender, with two times of it. ``burst_ms`` is the time
per launch of launches one directly after the other. ``single_ms`` is the time of one launch after the L2
cache has been overwritten. Both are medians over rounds, with the 10th and 90th percentile; a round runs all
contenders in random order. ``watts`` and ``clock_mhz`` are those of the GPU while a contender runs for
half a second, and ``tflops_per_watt`` is its speed in bursts over them. ``error`` is the largest error of
the outputs of two heads against float64, as a share of what rounding allows.

Contenders: the rungs; torch's scaled_dot_product_attention by its backends cuDNN and flash; FlexAttention,
compiled; FlashAttention-3 where ``flash_attn_interface`` can be imported, and FlashAttention-4 where
``flash_attn.cute`` can. Their versions are in the column ``version``. ``--fa3-library`` names the operator
library of FlashAttention-3, ``flash_attn_3/_C.so`` of its package or of xformers, and calls its operators
``fwd`` and ``bwd`` instead of the interface. A ``libcudart.so`` beside the library is loaded before it.
Needs a GPU of sm_90, nvcc and a Python with torch, pandas and rich; the package need not be installed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.metadata
import itertools
import math
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import torch
from fa3_library import FlashAttention3
from torch import Tensor
from torch.nn.attention import SDPBackend

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ladder.backends import get_backend, make_outputs
from ladder.backends.timing import Timing
from ladder.bench.provenance import measured_on
from ladder.build import build_all
from ladder.errors import LadderError
from ladder.lessons.recorded import DENSE
from ladder.operations import BackwardProblem, Problem, operation_of
from ladder.operations.attention.baselines import attend
from ladder.operations.attention.reference import attention_float64
from ladder.operations.base import torch_dtypes
from ladder.stages import discover

#: What is measured by default, beside the peers.
RUNGS = (
    *("v11b_store", "v12_order", DENSE["attention"]),
    *("b4g_wide_adds", "b5_early_dv", "b5b_store_warps", "b5c_80_queries", "b5d_loads_ahead"),
    *(DENSE["attention_backward"], "b6_same_bits"),
)
BURST_MS = 50.0
SINGLES = 4  # per round
FLUSHED_BYTES = 256 << 20
SHOWN = ("tflops_burst", "tflops_single", "watts", "clock_mhz", "error")

Run = Callable[[], Sequence[Tensor]]
#: A contender's name, its version, and what makes its run.
Contender = tuple[str, str, Callable[[], Run]]
#: Yields the contenders that take a problem.
Peer = Callable[[Problem, Mapping[str, Any]], Iterator[Contender]]


def problems(passes: Sequence[str]) -> Iterator[Problem]:
    """Both masks at three lengths; other head dims, dtypes and groups of heads at the middle one."""
    base = Problem(4, 16, 4096, 4096, 128, dtype="bf16")
    sizes = [replace(base, head_dim=d) for d in (128, 64)]
    sizes += [replace(one, batch=1, q_len=16384, kv_len=16384) for one in sizes]
    short = [replace(one, batch=16, q_len=1024, kv_len=1024) for one in sizes[:2]]
    forward = [*sizes, replace(base, dtype="f16"), replace(base, head_dim=256), *short]
    shapes = {"forward": forward, "backward": [*sizes, *short]}
    group = replace(base, heads=32, kv_heads=8, is_causal=True)
    for name in passes:
        masked = [
            replace(one, is_causal=is_causal)
            for one, is_causal in itertools.product(shapes[name], (False, True))
        ]
        for one in [*masked, group]:
            yield one if name == "forward" else BackwardProblem(**asdict(one))


def make_inputs(problem: Problem) -> dict[str, Tensor | None]:
    """Standard normal values on the GPU; for gradients also the exact o and lse, rounded."""
    generator = torch.Generator("cuda").manual_seed(1)
    operation, dtype = operation_of(problem), torch_dtypes()[problem.dtype or "bf16"]

    def draw(name: str) -> Tensor:
        shape = operation.input_shapes(problem)[name]
        return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)

    inputs: dict[str, Tensor | None] = {name: draw(name) for name in "qkv"}
    inputs |= dict.fromkeys(("sinks", "cu_seqlens_q", "cu_seqlens_k"))
    if not isinstance(problem, BackwardProblem):
        return inputs
    o, d_o = torch.empty_like(draw("q")), draw("d_o")
    lse = torch.empty(o.shape[:3], device="cuda")
    group = problem.heads // problem.num_kv_heads
    for batch, head in itertools.product(range(problem.batch), range(problem.heads)):
        places = {"q": head, "k": head // group, "v": head // group}
        one = [inputs[name][batch, place][None, None] for name, place in places.items()]  # type: ignore[index]
        o[batch, head], lse[batch, head] = (x[0, 0] for x in attention_float64(*one, **problem.rules))
    return {**inputs, "o": o, "lse": lse, "d_o": d_o, "d_lse": None, "d_sinks": None}


class Rungs:
    """The rungs, built for the problems that they suit."""

    def __init__(self, names: Sequence[str], measured: Sequence[Problem]) -> None:
        here, found = get_backend("cuda"), discover()
        self._suited = {name: [*filter(found[name].suits, measured)] for name in names}
        self._suited = {name: suited for name, suited in self._suited.items() if suited}
        stages = [found[name].narrowed(suited) for name, suited in self._suited.items()]
        targets = {stage.name: here.target(stage, None) for stage in stages}
        options = {stage.name: stage.chosen_options({}) for stage in stages}
        self._loaded = {}
        for name, built in build_all(stages, targets, options).items():
            if isinstance(built, LadderError):
                raise built
            self._loaded[name] = here.loaded(built, targets[name], torch.device("cuda"))

    def contenders(self, problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
        for name, suited in self._suited.items():
            if problem in suited:
                yield name, "", partial(self._run, name, problem, inputs)

    def _run(self, name: str, problem: Problem, inputs: Mapping[str, Any]) -> Run:
        operation = operation_of(problem)
        outputs = make_outputs(problem, "cuda")
        arguments = operation.arguments(problem, {**inputs, **outputs})
        launch = self._loaded[name]([*inputs], [*outputs], arguments)
        tensors = [*inputs.values(), *outputs.values()]
        wanted = [outputs[output.name] for output in operation.outputs(problem)]

        def run() -> Sequence[Tensor]:
            launch(tensors)
            return wanted

        return run


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def of_function(attend: Attend, problem: Problem, inputs: Mapping[str, Any], heads_last: bool = False) -> Run:
    """The run of a function of q, k and v; of its gradients alone, if the problem is theirs. With
    ``heads_last`` the function takes and returns (batch, rows, heads, d), as FlashAttention does.
    """

    def laid_out(tensor: Tensor) -> Tensor:
        return tensor.transpose(1, 2).contiguous() if heads_last else tensor

    def back(tensor: Tensor) -> Tensor:
        return tensor.transpose(1, 2) if heads_last else tensor

    q, k, v = (laid_out(inputs[name]) for name in "qkv")
    if not isinstance(problem, BackwardProblem):

        def forward() -> Sequence[Tensor]:
            with torch.no_grad():
                return [back(attend(q, k, v))]

        return forward
    leaves = [tensor.requires_grad_() for tensor in (q.detach(), k.detach(), v.detach())]
    o, d_o = attend(*leaves), laid_out(inputs["d_o"])

    def gradients() -> Sequence[Tensor]:
        return [*map(back, torch.autograd.grad(o, leaves, d_o, retain_graph=True))]

    return gradients


def torch_contenders(problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
    cudnn = f"cuDNN {torch.backends.cudnn.version()}"
    for name, backend, version in (
        ("torch cuDNN", SDPBackend.CUDNN_ATTENTION, cudnn),
        ("torch flash", SDPBackend.FLASH_ATTENTION, ""),
    ):
        yield name, version, partial(of_function, partial(attend, problem, backend), problem, inputs)


def flex_contender(problem: Problem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
    """FlexAttention, for the problems whose compilation is worth its time."""
    if problem.q_len != 4096 or problem.head_dim > 128 or problem.dtype != "bf16":
        return
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled: Any = torch.compile(flex_attention, dynamic=False)
    length, gqa = problem.q_len, problem.heads != problem.num_kv_heads
    mask = (
        create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length)
        if problem.is_causal
        else None
    )

    def attend_in_blocks(*qkv: Tensor) -> Tensor:
        return compiled(*qkv, block_mask=mask, enable_gqa=gqa)

    yield "FlexAttention", "", partial(of_function, attend_in_blocks, problem, inputs)


#: Module and package.
FLASH = {
    "FlashAttention-3": ("flash_attn_interface", "flash_attn_3"),
    "FlashAttention-4": ("flash_attn.cute", "flash-attn-4"),
}


def flash_contenders(
    problem: Problem, inputs: Mapping[str, Any], names: Sequence[str] = (*FLASH,)
) -> Iterator[Contender]:
    """Those of ``names`` that can be imported."""
    for name in names:
        module, package = FLASH[name]
        with suppress(ImportError):
            interface = importlib.import_module(module)

            def flash_attend(*qkv: Tensor, interface: ModuleType = interface) -> Tensor:
                o = interface.flash_attn_func(*qkv, causal=problem.is_causal)
                return o[0] if isinstance(o, tuple) else o

            version = _version(interface, package)
            yield name, version, partial(of_function, flash_attend, problem, inputs, heads_last=True)


def _version(module: ModuleType, package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return str(getattr(module, "__version__", ""))


PEERS: dict[str, Peer] = {"torch": torch_contenders, "flex": flex_contender, "flash": flash_contenders}


def chosen_peers(names: Sequence[str], fa3_library: Path | None) -> list[Peer]:
    """The peers of these names. A library of FlashAttention-3 takes the place of its interface."""
    chosen = {name: PEERS[name] for name in names}
    if fa3_library is None:
        return [*chosen.values()]
    if "flash" in chosen:
        chosen["flash"] = partial(flash_contenders, names=("FlashAttention-4",))
    return [*chosen.values(), FlashAttention3(fa3_library).contenders]


class Checker:
    """The exact outputs of two heads of a problem."""

    def __init__(self, problem: Problem, inputs: Mapping[str, Any]) -> None:
        operation = operation_of(problem)
        part, given = operation.part(problem, inputs)
        assert isinstance(part, Problem)
        self._expected = operation.reference(part, given)
        self._outputs = operation.outputs(part)
        if part.heads * problem.num_kv_heads != part.num_kv_heads * problem.heads:
            self._outputs = self._outputs[:1]  # dk and dv are sums over query heads that are not checked

    def error(self, outputs: Sequence[Tensor]) -> float:
        """The largest error of the checked heads, as a share of what the reference allows."""
        worst = 0.0
        for output, whole in zip(self._outputs, outputs, strict=False):
            checked = whole[: output.shape[0], : output.shape[1]]
            deviation = self._expected.deviation(output.name, checked)
            worst = max(worst, deviation.largest / self._expected.bounds[output.name])
        return worst


class Meter:
    """The GPU's energy and clock, of NVIDIA's management library."""

    def __init__(self) -> None:
        self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = ctypes.c_void_p()
        self._nvml.nvmlInit_v2()
        self._nvml.nvmlDeviceGetHandleByIndex_v2(torch.cuda.current_device(), ctypes.byref(self._device))

    def joules(self) -> float:
        millijoules = ctypes.c_ulonglong()
        self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device, ctypes.byref(millijoules))
        return millijoules.value * 1e-3

    def clock_mhz(self) -> int:
        clock = ctypes.c_uint()
        self._nvml.nvmlDeviceGetClockInfo(self._device, 1, ctypes.byref(clock))  # 1: the SMs'
        return clock.value


@dataclass
class Timer:
    """Times launches in bursts, and one by one after the L2 cache has been overwritten."""

    flushed: Tensor
    meter: Meter
    power_seconds: float

    def burst(self, run: Run, count: int) -> float:
        """ms per launch of ``count`` launches. The host gets ahead while the GPU sleeps."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(400_000)
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / count

    def single(self, run: Run) -> float:
        self.flushed.zero_()
        return self.burst(run, 1)

    def measure(self, runs: Mapping[str, Run], rounds: int) -> tuple[dict[str, Timing], dict[str, Timing]]:
        counts = {name: max(2, min(20, int(BURST_MS / self.burst(run, 3)))) for name, run in runs.items()}
        bursts: dict[str, list[float]] = {name: [] for name in runs}
        singles: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name in random.sample([*runs], len(runs)):
                bursts[name].append(self.burst(runs[name], counts[name]))
            for name in random.sample([*runs], len(runs)):
                singles[name] += [self.single(runs[name]) for _ in range(SINGLES)]
        return (
            {name: Timing.of(times) for name, times in bursts.items()},
            {name: Timing.of(times) for name, times in singles.items()},
        )

    def power(self, run: Run, ms: float) -> tuple[float, float]:
        """Watts and the SMs' clock in MHz while launches run for ``power_seconds``."""
        launches = max(4, int(self.power_seconds * 1e3 / ms))
        done = torch.cuda.Event()
        for _ in range(launches):
            run()
        done.record()
        read, clocks = [], []
        while not done.query():
            read.append((time.perf_counter(), self.meter.joules()))
            clocks.append(self.meter.clock_mhz())
            time.sleep(0.002)
        return watts(read), sum(clocks) / len(clocks) if clocks else math.nan


def watts(read: Sequence[tuple[float, float]]) -> float:
    """The power between the first and the last change of the energy counter, which counts in steps of some
    0.1 s; NaN if it has not changed twice. ``read`` holds seconds and joules.
    """
    changes = [now for before, now in itertools.pairwise(read) if now[1] != before[1]]
    if len(changes) < 2:
        return math.nan
    (began, first), *_, (ended, last) = changes
    return (last - first) / (ended - began)


def measured(
    problem: Problem, rungs: Rungs, peers: Sequence[Peer], timer: Timer, rounds: int
) -> list[dict[str, Any]]:
    """The rows of a problem. A contender that fails is reported and left out."""
    inputs = make_inputs(problem)
    checker = Checker(problem, inputs)
    runs: dict[str, Run] = {}
    versions, errors = {}, {}
    found = [contenders(problem, inputs) for contenders in (rungs.contenders, *peers)]
    for name, version, make in itertools.chain(*found):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says why a backend does not take the problem
                run = make()
                errors[name] = checker.error(run())
            runs[name], versions[name] = run, version
        except (RuntimeError, LadderError) as failure:
            print(f"{problem}: {name}: {str(failure).splitlines()[0]}", file=sys.stderr)
    bursts, singles = timer.measure(runs, rounds)
    rows = []
    for name, run in runs.items():
        burst, single = bursts[name], singles[name]
        power, clock = timer.power(run, burst.median_ms)
        speed = burst.tflops(problem.flops)
        rows.append(
            {
                "pass": "backward" if isinstance(problem, BackwardProblem) else "forward",
                "contender": name,
                "version": versions[name],
                **operation_of(problem).row(problem),
                **{f"burst_{key}": value for key, value in asdict(burst).items()},
                **{f"single_{key}": value for key, value in asdict(single).items()},
                "tflops_burst": speed,
                "tflops_single": single.tflops(problem.flops),
                "watts": power,
                "clock_mhz": clock,
                "tflops_per_watt": speed / power,
                "error": errors[name],
                "passed": errors[name] <= 1,
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=400.0, help="no problem begins later than this")
    parser.add_argument("--power", type=float, default=0.5, metavar="SECONDS", help="of measuring watts")
    parser.add_argument("--pass", dest="passes", nargs="+", default=["forward", "backward"], metavar="PASS")
    parser.add_argument("--rungs", nargs="+", default=[*RUNGS], metavar="STAGE")
    parser.add_argument("--peers", nargs="+", choices=[*PEERS], default=[*PEERS], metavar="PEER")
    parser.add_argument(
        "--fa3-library", type=Path, metavar="PATH", help="FlashAttention-3's _C.so, instead of its interface"
    )
    options = parser.parse_args()
    began = time.monotonic()
    try:
        peers = chosen_peers(options.peers, options.fa3_library)
        chosen = [*problems(options.passes)]
        rungs = Rungs(options.rungs, chosen)
        where = measured_on()
        timer = Timer(torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda"), Meter(), options.power)
        rows: list[dict[str, Any]] = []
        options.out.mkdir(parents=True, exist_ok=True)
        for problem in chosen:
            if time.monotonic() - began > options.seconds:
                print(f"{problem} is left out: the time is over", file=sys.stderr)
                continue
            new = measured(problem, rungs, peers, timer, options.rounds)
            rows += [{**where, **row} for row in new]
            torch.cuda.empty_cache()
            pd.DataFrame(rows).to_csv(options.out / "peers.csv", index=False, float_format="%.6g")
            shown = pd.DataFrame(new)[["contender", *SHOWN]].to_string(index=False, float_format="%.3g")
            print(f"\n{problem} ({time.monotonic() - began:.0f} s)\n{shown}", flush=True)
    except LadderError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return 0 if all(row["passed"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
