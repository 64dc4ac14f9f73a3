"""Timing on a GPU: CUDA events between queued launches, inputs beyond the L2, medians with their spread."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from ladder.operations import AnyProblem, Tensors, operation_of

#: Launches once on the given inputs, in the current stream.
Run = Callable[[Tensors], object]

_ROUNDS = 5
_RUNS_A_ROUND = 50
_INPUT_SETS = 64
_MATMUL_SIZE = 8192
#: For how long the GPU waits for the host to queue a launch, at first and at most.
_CYCLES_AHEAD, _MOST_CYCLES_AHEAD = 400_000, 50_000_000
_BASELINE_SECONDS = 0.3
#: Floating-point operations of one :func:`matmul`.
MATMUL_FLOPS = 2.0 * _MATMUL_SIZE**3


@dataclass(frozen=True)
class Timing:
    """Times of one launch in ms: the median of ``runs`` launches, with the 10th and 90th percentile."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    runs: int

    @classmethod
    def of(cls, times_ms: Iterable[float]) -> Timing:
        """Summarises the times of single launches."""
        times = torch.tensor(list(times_ms), dtype=torch.float64)
        p10, median, p90 = torch.quantile(times, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
        return cls(median, p10, p90, len(times))

    def tflops(self, flops: float) -> float:
        """The speed in TFLOP/s of a launch of ``flops`` operations."""
        return flops / self.median_ms * 1e-9


def measure(runs: Mapping[str, Run], sets: Sequence[Tensors], seconds: float) -> dict[str, Timing]:
    """Times each run for ``seconds`` in total. Runs take turns in short rounds, so that a change of clocks
    affects all of them alike, each round in another order, since one that heats the GPU slows down the next;
    inputs rotate from launch to launch.
    """
    counts = {}
    for name, run in runs.items():
        warm = min(times_ms(run, sets[:3]))
        wanted = math.ceil(seconds * 1e3 / _ROUNDS / max(warm, 1e-3))
        counts[name] = max(2, min(_RUNS_A_ROUND, wanted))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(_ROUNDS):
        for name in random.sample([*runs], len(runs)):
            inputs = [sets[(turn + i) % len(sets)] for i in range(counts[name])]
            times[name] += times_ms(runs[name], inputs)
    return {name: Timing.of(values) for name, values in times.items()}


def times_ms(run: Run, inputs: Sequence[Tensors]) -> list[float]:
    """Times a launch on each of the inputs, between events in the current stream.

    The GPU sleeps until the host has queued all launches, or the time that the host needs for a launch would
    be part of it. If the host was later, the launches are repeated after a longer sleep, up to 25 ms each.
    """
    cycles = _CYCLES_AHEAD
    while True:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(inputs) + 1)]
        torch.cuda._sleep(cycles * len(inputs))
        events[0].record()
        for one, end in zip(inputs, events[1:], strict=True):
            run(one)
            end.record()
        host_was_late = events[0].query()
        events[-1].synchronize()
        if not host_was_late or cycles >= _MOST_CYCLES_AHEAD:
            return [start.elapsed_time(end) for start, end in itertools.pairwise(events)]
        cycles *= 5


def input_sets(problem: AnyProblem, first: Tensors) -> list[Tensors]:
    """The inputs and shuffled copies of them, 2 to 64 sets, so that together they fill the L2 twice."""
    tensors = [tensor for tensor in first.values() if tensor is not None]
    l2_bytes = torch.cuda.get_device_properties(tensors[0].device).L2_cache_size
    set_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    count = min(max(2, math.ceil(2 * l2_bytes / set_bytes)), _INPUT_SETS)
    return [first, *(operation_of(problem).other_inputs(first, i) for i in range(1, count))]


def baselines(problem: AnyProblem) -> dict[str, float]:
    """Measures, in TFLOP/s, a matrix product and the libraries' implementations of the problem."""
    operation = operation_of(problem)
    sets = input_sets(problem, operation.make_inputs(problem, "cuda"))
    timings = measure(operation.baselines(problem, sets[0]), sets, _BASELINE_SECONDS)
    speeds = {name: timed.tflops(problem.flops) for name, timed in timings.items()}
    return {"torch matmul": matmul().tflops(MATMUL_FLOPS), **speeds}


def matmul() -> Timing:
    """Times a bf16 matrix product of 8192 x 8192 x 8192, :data:`MATMUL_FLOPS` operations, on random data."""
    a, b = (torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return Timing.of(times_ms(lambda _: a @ b, [{}] * 30)[5:])
