"""Rungs and other implementations side by side on one GPU: two times of each, watts, errors, and a table.

``burst_ms`` is the time per launch of launches one directly after the other. ``single_ms`` is the time of one
launch after the L2 cache has been overwritten. Both are medians over rounds, with the 10th and 90th
percentile; a round runs all contenders in random order. ``watts`` and ``clock_mhz`` are those of the GPU
while a contender runs for half a second, and ``tflops_per_watt`` is its speed in bursts over them. ``error``
is the largest error of the outputs against float64, as a share of what rounding allows.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import itertools
import math
import random
import sys
import time
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pandas as pd
import torch
from torch import Tensor

from ladder.compile import build_all
from ladder.errors import LadderError
from ladder.operations import AnyProblem, operation_of
from ladder.run.backends import get_backend, make_outputs
from ladder.run.backends.timing import Timing
from ladder.stages import discover
from tools.bench.provenance import measured_on

BURST_MS = 50.0
SINGLES = 4  # per round
FLUSHED_BYTES = 256 << 20
#: How long the GPU sleeps before a burst, while the host gets ahead.
CYCLES_AHEAD = 400_000
PASSES = ("forward", "backward")
SHOWN = ("tflops_burst", "tflops_single", "watts", "clock_mhz", "error")

Run = Callable[[], Sequence[Tensor]]
#: A contender's name, its version, and what makes its run.
Contender = tuple[str, str, Callable[[], Run]]
#: Yields the contenders that take a problem.
Peer = Callable[[Any, Mapping[str, Any]], Iterator[Contender]]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
P = TypeVar("P")
K = TypeVar("K", bound=Hashable)


def is_backward(problem: AnyProblem) -> bool:
    return problem.operation.endswith("_backward")


class Rungs:
    """The rungs, built for the problems that they suit."""

    def __init__(self, names: Sequence[str], measured: Sequence[AnyProblem]) -> None:
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

    def contenders(self, problem: AnyProblem, inputs: Mapping[str, Any]) -> Iterator[Contender]:
        for name, suited in self._suited.items():
            if problem in suited:
                yield name, "", partial(self._run, name, problem, inputs)

    def _run(self, name: str, problem: AnyProblem, inputs: Mapping[str, Any]) -> Run:
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


def of_function(
    attend: Attend, problem: AnyProblem, inputs: Mapping[str, Any], heads_last: bool = False
) -> Run:
    """The run of a function of q, k and v; of its gradients alone, if the problem is theirs. With
    ``heads_last`` the function takes and returns (batch, rows, heads, d), as FlashAttention does.
    """

    def laid_out(tensor: Tensor) -> Tensor:
        return tensor.transpose(1, 2).contiguous() if heads_last else tensor

    def back(tensor: Tensor) -> Tensor:
        return tensor.transpose(1, 2) if heads_last else tensor

    q, k, v = (laid_out(inputs[name]) for name in "qkv")
    if not is_backward(problem):

        def forward() -> Sequence[Tensor]:
            with torch.no_grad():
                return [back(attend(q, k, v))]

        return forward
    leaves = [tensor.requires_grad_() for tensor in (q.detach(), k.detach(), v.detach())]
    o, d_o = attend(*leaves), laid_out(inputs["d_o"])

    def gradients() -> Sequence[Tensor]:
        return [*map(back, torch.autograd.grad(o, leaves, d_o, retain_graph=True))]

    return gradients


def version_of(module: ModuleType, package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return str(getattr(module, "__version__", ""))


class Checker:
    """The exact outputs of a part of a problem, except those ``left_out``."""

    def __init__(
        self, problem: AnyProblem, inputs: Mapping[str, Any], left_out: Collection[str] = ()
    ) -> None:
        operation = operation_of(problem)
        part, given = operation.part(problem, inputs)
        self._expected = operation.reference(part, given)
        self._outputs = operation.outputs(part)
        self._left_out = left_out

    def error(self, outputs: Sequence[Tensor]) -> float:
        """The largest error of that part, as a share of what the reference allows; NaN if one is NaN."""
        shares = [0.0]
        for output, whole in zip(self._outputs, outputs, strict=False):
            if output.name not in self._left_out:
                checked = whole[: output.shape[0], : output.shape[1]]
                deviation = self._expected.deviation(output.name, checked)
                shares.append(deviation.largest / self._expected.bounds[output.name])
        return math.nan if any(map(math.isnan, shares)) else max(shares)


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
    cycles_ahead: int = CYCLES_AHEAD

    @classmethod
    def here(cls, power_seconds: float, cycles_ahead: int = CYCLES_AHEAD) -> Timer:
        """Of the current GPU."""
        flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
        return cls(flushed, Meter(), power_seconds, cycles_ahead)

    def burst(self, run: Run, count: int) -> float:
        """ms per launch of ``count`` launches. The host gets ahead while the GPU sleeps."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(self.cycles_ahead)
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / count

    def single(self, run: Run) -> float:
        self.flushed.zero_()
        return self.burst(run, 1)

    def measure(self, runs: Mapping[K, Run], rounds: int) -> tuple[dict[K, Timing], dict[K, Timing]]:
        counts = {name: max(2, min(20, int(BURST_MS / self.burst(run, 3)))) for name, run in runs.items()}
        bursts: dict[K, list[float]] = {name: [] for name in runs}
        singles: dict[K, list[float]] = {name: [] for name in runs}
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


@dataclass(frozen=True)
class Ready:
    """A contender that has run once on a problem; ``error`` is that of its outputs."""

    problem: AnyProblem
    name: str
    version: str
    run: Run
    error: float


def made_ready(
    problem: AnyProblem, inputs: Mapping[str, Any], peers: Sequence[Peer], checker: Checker
) -> list[Ready]:
    """The contenders on a problem. One that fails is reported and left out."""
    ready = []
    found = [contenders(problem, inputs) for contenders in peers]
    for name, version, make in itertools.chain(*found):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says why a backend does not take the problem
                run = make()
                ready.append(Ready(problem, name, version, run, checker.error(run())))
        except Exception as failure:  # others' code raises what it likes
            reason = (str(failure) or type(failure).__name__).splitlines()[0]
            print(f"{problem}: {name}: {reason}", file=sys.stderr)
            require_usable(f"{name} on {problem}")
    return ready


def timed(ready: Sequence[Ready], timer: Timer, rounds: int) -> list[dict[str, Any]]:
    """The rows of contenders, on one problem or on several, that take turns."""
    bursts, singles = timer.measure({number: one.run for number, one in enumerate(ready)}, rounds)
    return [
        {
            "pass": "backward" if is_backward(one.problem) else "forward",
            "contender": one.name,
            "version": one.version,
            **operation_of(one.problem).row(one.problem),
            **_speed(one.problem.flops, burst, single, timer.power(one.run, burst.median_ms)),
            "error": one.error,
            "passed": one.error <= 1,
        }
        for one, burst, single in zip(ready, bursts.values(), singles.values(), strict=True)
    ]


def measured(
    problem: AnyProblem,
    inputs: Mapping[str, Any],
    peers: Sequence[Peer],
    checker: Checker,
    timer: Timer,
    rounds: int,
) -> list[dict[str, Any]]:
    """The rows of a problem."""
    return timed(made_ready(problem, inputs, peers, checker), timer, rounds)


def require_usable(after: str) -> None:
    """Raises :class:`LadderError` if a kernel has faulted: then no other runs in this process."""
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError as failure:
        raise LadderError(
            f"after {after} this process cannot use the GPU any more: {str(failure).splitlines()[0]}",
            "The problems before it are in the table; measure the others without this contender",
        ) from failure


def _speed(flops: float, burst: Timing, single: Timing, power: tuple[float, float]) -> dict[str, float]:
    """The columns of times, speeds and power."""
    speed = burst.tflops(flops)
    return {
        **{f"burst_{key}": value for key, value in asdict(burst).items()},
        **{f"single_{key}": value for key, value in asdict(single).items()},
        "tflops_burst": speed,
        "tflops_single": single.tflops(flops),
        "watts": power[0],
        "clock_mhz": power[1],
        "tflops_per_watt": speed / power[0],
    }


def measure_each(
    problems: Iterable[P],
    rows_of: Callable[[P], list[dict[str, Any]]],
    out: Path,
    began: float,
    seconds: float,
) -> bool:
    """Writes the table again after each problem, and shows the problem's rows; no problem begins later than
    ``seconds`` after ``began``. Returns whether all outputs were right.
    """
    where = measured_on()
    rows: list[dict[str, Any]] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    for problem in problems:
        if time.monotonic() - began > seconds:
            print(f"{problem} is left out: the time is over", file=sys.stderr)
            continue
        new = rows_of(problem)
        rows += [{**where, **row} for row in new]
        torch.cuda.empty_cache()
        if not new:
            continue
        pd.DataFrame(rows).to_csv(out, index=False, float_format="%.6g")
        shown = pd.DataFrame(new)[["contender", *SHOWN]].to_string(index=False, float_format="%.3g")
        print(f"\n{problem} ({time.monotonic() - began:.0f} s)\n{shown}", flush=True)
    return all(row["passed"] for row in rows)


def add_options(parser: argparse.ArgumentParser, rungs: Sequence[str]) -> None:
    """The options that all such measurements have."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=400.0, help="no problem begins later than this")
    parser.add_argument("--power", type=float, default=0.5, metavar="SECONDS", help="of measuring watts")
    parser.add_argument("--pass", dest="passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument("--rungs", nargs="+", default=[*rungs], metavar="STAGE")
