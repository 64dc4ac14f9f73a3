"""The GPU: CUDA tensors in, outputs and times out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ladder.backends import timing
from ladder.backends.base import Backend, Execution, call, frame_is_whole, make_outputs
from ladder.build import CudaTarget, Target
from ladder.errors import ExecutionError, InvalidProblem
from ladder.operations import AnyProblem, Operation, Tensors

if TYPE_CHECKING:
    from ladder.stages import Stage

_SECONDS = 0.3


class CudaBackend(Backend):
    """Runs the stage on torch's current CUDA device, in its current stream."""

    name = "cuda"
    device = "cuda"
    counts = False
    times = True
    is_exact = False

    def default_problem(self, operation: Operation) -> AnyProblem:
        return operation.default_gpu_problem

    def target(self, stage: Stage, arch: str | None) -> Target:
        here = "sm_{}{}".format(*torch.cuda.get_device_capability())
        if arch not in (None, here):
            raise InvalidProblem(
                f"this GPU is an {here}, not an {arch}", "--backend emulator takes any --arch."
            )
        return CudaTarget(stage.arch(here))

    def execute(
        self,
        extension: Path,
        target: Target,
        problem: AnyProblem,
        inputs: Tensors,
        *,
        timed: bool = False,
    ) -> Execution:
        device = next(tensor.device for tensor in inputs.values() if tensor is not None)
        with torch.cuda.device(device):
            outputs = make_outputs(problem, device)
            stream = torch.cuda.current_stream()
            try:
                call(extension, problem, {**inputs, **outputs}, stream.cuda_stream)
                for name, output in outputs.items():
                    if not frame_is_whole(output):
                        raise ExecutionError(f"it writes past the ends of {name}")
                if timed:
                    return Execution(outputs, timing=_timing(extension, problem, inputs))
            except RuntimeError as error:
                raise ExecutionError(str(error)) from error
            return Execution(outputs)

    def compute(
        self, extension: Path, target: Target, problem: AnyProblem, inputs: Tensors
    ) -> dict[str, torch.Tensor]:
        """Only launches, on the current stream, and waits for nothing: a CUDA graph can capture it."""
        device = next(tensor.device for tensor in inputs.values() if tensor is not None)
        with torch.cuda.device(device):
            outputs = make_outputs(problem, device, filled=False)
            call(extension, problem, {**inputs, **outputs}, torch.cuda.current_stream().cuda_stream)
            return outputs


def _timing(extension: Path, problem: AnyProblem, inputs: Tensors) -> timing.Timing:
    outputs = make_outputs(problem, "cuda")

    def run(inputs: Tensors) -> None:
        call(extension, problem, {**inputs, **outputs}, torch.cuda.current_stream().cuda_stream)

    return timing.measure({"": run}, timing.input_sets(problem, inputs), _SECONDS)[""]
