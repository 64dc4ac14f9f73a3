"""The GPU: CUDA tensors in, outputs and the time of a run out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ladder import timing
from ladder.backends.base import Backend, Execution, call, make_outputs
from ladder.build import Target
from ladder.errors import ExecutionError, InvalidProblem, UnsupportedProblem
from ladder.problem import Problem
from ladder.stages import arch_number

if TYPE_CHECKING:
    from ladder.stages import Stage

_SECONDS = 0.3


class CudaBackend(Backend):
    """Runs the stage on torch's current CUDA device, in its current stream."""

    name = "cuda"
    device = "cuda"

    def target(self, stage: Stage, arch: str | None) -> Target:
        here = "sm_{}{}".format(*torch.cuda.get_device_capability())
        if arch not in (None, here):
            raise InvalidProblem(
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
                    return Execution(o, lse, timing=_timing(extension, problem, (q, k, v)))
            except RuntimeError as error:
                raise ExecutionError(str(error)) from error
            return Execution(o, lse)


def _timing(extension: Path, problem: Problem, inputs: timing.Inputs) -> timing.Timing:
    o, lse = torch.empty_like(inputs[0]), torch.empty(inputs[0].shape[:3], device=inputs[0].device)

    def run(inputs: timing.Inputs) -> None:
        call(extension, problem, *inputs, o, lse, torch.cuda.current_stream().cuda_stream)

    return timing.measure({"": run}, timing.input_sets(inputs), _SECONDS)[""]
