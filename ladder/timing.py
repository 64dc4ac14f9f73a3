"""Times on a GPU: CUDA events, a warm-up, inputs that together exceed the L2, medians with their spread."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ladder.inputs import make_inputs
from ladder.problem import Problem

Inputs = tuple[Tensor, Tensor, Tensor]
#: One call on q, k and v, in the current stream.
Run = Callable[[Inputs], object]

_ROUNDS = 5
_RUNS_A_ROUND = 50
_INPUT_SETS = 64
_MATMUL_SIZE = 8192
_BASELINE_SECONDS = 0.3
#: Operations of the product of :func:`matmul`.
MATMUL_FLOPS = 2.0 * _MATMUL_SIZE**3


@dataclass(frozen=True)
class Timing:
    """Of one launch, in ms: the median of ``runs`` of them, with the 10th and 90th percentile."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    runs: int

    @classmethod
    def of(cls, times_ms: Iterable[float]) -> Timing:
        """Of all these times."""
        times = torch.tensor(list(times_ms), dtype=torch.float64)
        p10, median, p90 = torch.quantile(times, torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
        return cls(median, p10, p90, len(times))

    def tflops(self, flops: float) -> float:
        """The speed of something that takes so many operations."""
        return flops / self.median_ms * 1e-9


def measure(runs: Mapping[str, Run], sets: Sequence[Inputs], seconds: float) -> dict[str, Timing]:
    """The time of each run, over ``seconds`` each, in rounds that take all in turn.

    So a change of clocks meets all of them. Inputs rotate from launch to launch.
    """
    counts = {}
    for name, run in runs.items():
        warm = min(time_ms(run, inputs) for inputs in sets[:3])
        wanted = math.ceil(seconds * 1e3 / _ROUNDS / max(warm, 1e-3))
        counts[name] = max(2, min(_RUNS_A_ROUND, wanted))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(_ROUNDS):
        for name, run in runs.items():
            for i in range(counts[name]):
                times[name].append(time_ms(run, sets[(turn + i) % len(sets)]))
    return {name: Timing.of(values) for name, values in times.items()}


def time_ms(run: Run, inputs: Inputs) -> float:
    """One launch between two events in the current stream."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run(inputs)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def input_sets(first: Inputs) -> list[Inputs]:
    """These inputs and others, as many as fill the L2 twice, 2 at least and 64 at most.

    The others are shuffles of the first along the sequence: the same values, elsewhere in memory.
    """
    l2_bytes = torch.cuda.get_device_properties(first[0].device).L2_cache_size
    set_bytes = sum(tensor.numel() * tensor.element_size() for tensor in first)
    count = min(max(2, math.ceil(2 * l2_bytes / set_bytes)), _INPUT_SETS)
    rolled = [(first[0].roll(i, 2), first[1].roll(i, 2), first[2].roll(i, 2)) for i in range(1, count)]
    return [first, *rolled]


def torch_runs(problem: Problem, inputs: Inputs) -> dict[str, Callable[[Inputs], Tensor]]:
    """torch's attention by the backend that computes it; those that take the problem, tried on ``inputs``."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {
        "torch flash": SDPBackend.FLASH_ATTENTION,
        "torch cuDNN": SDPBackend.CUDNN_ATTENTION,
        "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
    }
    group = problem.heads // problem.num_kv_heads
    found: dict[str, Callable[[Inputs], Tensor]] = {}
    for name, backend in backends.items():

        def run(inputs: Inputs, backend: SDPBackend = backend) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    *inputs, is_causal=problem.is_causal, scale=problem.scale, enable_gqa=group > 1
                )

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # why a backend does not take the problem
                run(inputs)
                torch.cuda.synchronize()
        except RuntimeError:
            continue
        found[name] = run
    return found


def baselines(problem: Problem) -> dict[str, float]:
    """TFLOP/s of torch's attention backends that take the problem, and of a matrix product, measured now."""
    sets = input_sets(make_inputs(problem, "cuda"))
    timings = measure(torch_runs(problem, sets[0]), sets, _BASELINE_SECONDS)
    speeds = {name: timed.tflops(problem.flops) for name, timed in timings.items()}
    return {"torch matmul": matmul().tflops(MATMUL_FLOPS), **speeds}


def matmul() -> Timing:
    """A bf16 matrix product of 8192 x 8192 x 8192 on random data; :data:`MATMUL_FLOPS` operations."""
    a, b = (torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = [time_ms(lambda x: x[0] @ x[1], (a, b, b)) for _ in range(30)]
    return Timing.of(times[5:])
