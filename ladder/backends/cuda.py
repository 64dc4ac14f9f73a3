"""The GPU: CUDA tensors in, outputs and the time of a run out."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ladder.backends.base import Backend, Execution, call, make_outputs
from ladder.build import Target
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.problem import Problem
from ladder.stages import arch_number

if TYPE_CHECKING:
    from ladder.stages import Stage

_WARM_UP_RUNS = 3
_TIMED_RUNS = 20
_TIMED_SECONDS = 2.0


class CudaBackend(Backend):
    """Runs the stage on torch's current CUDA device, in its current stream."""

    name = "cuda"
    device = "cuda"

    def target(self, stage: Stage, arch: str | None) -> Target:
        here = "sm_{}{}".format(*torch.cuda.get_device_capability())
        if arch not in (None, here):
            raise UnsupportedProblem(
                f"this GPU is an {here}, not an {arch}", "--backend emulator takes any --arch."
            )
        major, minor = stage.min_compute_capability
        if arch_number(here) < 10 * major + minor:
            raise UnsupportedProblem(
                f"{stage.name} needs compute capability {major}.{minor} or higher, not {here}"
            )
        return Target("cuda", here)

    def execute(
        self,
        extension: Path,
        target: Target,
        problem: Problem,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        timed: bool = False,
    ) -> Execution:
        with torch.cuda.device(q.device):
            o, lse = make_outputs(q)
            stream = torch.cuda.current_stream()
            try:
                call(extension, problem, q, k, v, o, lse, stream.cuda_stream)
                if timed:
                    time_ms = _time_ms(extension, problem, q, k, v)
                    return Execution(o, lse, time_ms=time_ms)
            except RuntimeError as error:
                raise ExecutionError(str(error)) from error
            return Execution(o, lse)


def _time_ms(extension: Path, problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> float:
    """The median of up to 20 runs, or as many as fit two seconds, each between two CUDA events."""
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device)
    stream = torch.cuda.current_stream()

    def run_ms() -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(stream)
        call(extension, problem, q, k, v, o, lse, stream.cuda_stream)
        end.record(stream)
        end.synchronize()
        return float(start.elapsed_time(end))

    warm_up = [run_ms() for _ in range(_WARM_UP_RUNS)]
    runs = max(3, min(_TIMED_RUNS, int(_TIMED_SECONDS * 1000 / max(min(warm_up), 1e-3))))
    return statistics.median(run_ms() for _ in range(runs))
