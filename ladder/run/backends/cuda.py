"""The GPU: CUDA tensors in, outputs and times out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ladder.common import isolation
from ladder.common.isolation import Child, ProcessEnded
from ladder.compile import CudaTarget, Target
from ladder.errors import ExecutionError, InvalidProblem
from ladder.operations import LARGEST_OFFSET, AnyProblem, Operation, Tensors, address_of
from ladder.run.backends import timing
from ladder.run.backends.arena import Arena, Place, mapped, view
from ladder.run.backends.base import (
    AS_USUAL,
    Backend,
    Execution,
    LaunchFunction,
    Loaded,
    Runner,
    Treatment,
    call,
    frame_is_whole,
    make_outputs,
    require_untouched,
)
from ladder.run.backends.extension import PreparedCall, prepared

if TYPE_CHECKING:
    from ladder.stages import Stage

#: What a child needs, to be imported before it is forked.
_PRELOAD = (__name__,)
_TIMED_SECONDS = 0.3
#: A run may take so many seconds, with the start of CUDA in its process.
_MOST_SECONDS = 600.0


class CudaBackend(Backend):
    """Runs the stage on torch's current CUDA device."""

    name = "cuda"
    device = "cuda"
    counts = False
    times = True
    is_exact = False
    varies = False

    def default_problem(self, operation: Operation) -> AnyProblem:
        return operation.default_gpu_problem

    def target(self, stage: Stage, arch: str | None) -> Target:
        here = "sm_{}{}".format(*torch.cuda.get_device_capability())
        if arch not in (None, here):
            raise InvalidProblem(
                f"this GPU is an {here}, not an {arch}", "--backend emulator takes any --arch."
            )
        return CudaTarget(stage.arch(here))

    def runner(self, extension: Path, target: Target) -> Runner:
        return CudaRunner(extension, target)

    def loaded(self, extension: Path, target: Target, device: torch.device) -> Loaded:
        """Launches on the current stream; a CUDA graph can capture it."""
        index = torch.cuda.current_device() if device.index is None else device.index

        def made(
            inputs: Sequence[str], outputs: Sequence[str], arguments: Mapping[str, Any], /
        ) -> LaunchFunction:
            return CudaLaunch(prepared(extension, [*inputs, *outputs], arguments), index)

        return made


class CudaLaunch:
    """Launches on tensors of one GPU, on its current stream."""

    __slots__ = ("_index", "call")

    def __init__(self, call: PreparedCall, index: int) -> None:
        self.call, self._index = call, index

    def __call__(self, tensors: Sequence[torch.Tensor | None]) -> None:
        # Called again for small addresses alone: most tensors then cost no call of Python.
        addresses = [
            0 if tensor is None else at if (at := tensor.data_ptr()) > LARGEST_OFFSET else address_of(tensor)
            for tensor in tensors
        ]
        index = self._index
        if _current_device() == index:
            self.call(_raw_stream(index), addresses)
        else:
            with torch.cuda.device(index):
                self.call(_raw_stream(index), addresses)


class CudaRunner(Runner):
    """Runs a build on the GPU. Inputs and outputs travel through the host's memory."""

    def __init__(self, extension: Path, target: Target) -> None:
        super().__init__(extension, target)
        isolation.warm_up(_PRELOAD)

    def _new_child(self) -> Child:
        return Child(preload=_PRELOAD)

    def run(
        self,
        problem: AnyProblem,
        inputs: Tensors,
        *,
        treatment: Treatment = AS_USUAL,
        timed: bool = False,
        details: bool = False,
    ) -> Execution:
        assert treatment == AS_USUAL, "a GPU makes its own choices"
        device = next(tensor.device for tensor in inputs.values() if tensor is not None)
        outputs = make_outputs(problem, device)
        missing = [name for name, tensor in inputs.items() if tensor is None]
        child = self.child
        with Arena.of({**inputs, **outputs}) as arena:
            try:
                answer = child.ask(
                    *(run_shared, self.extension, problem, arena.places),
                    *(missing, [*outputs], str(device), timed),
                    descriptors=[arena.descriptor],
                    seconds=_MOST_SECONDS,
                )
            except ExecutionError:
                child.close()  # CUDA's errors stay with a process
                raise
            afterwards = {name: arena.get(name) for name in inputs}
            require_untouched({name: x if x is None else x.cpu() for name, x in inputs.items()}, afterwards)
            for name, output in outputs.items():
                if not frame_is_whole(arena.whole(name), output):
                    raise ExecutionError(f"it writes past the ends of {name}")
            written = {name: arena[name].to(device) for name in outputs}
        try:
            return Execution(written, timing=timing.Timing(**answer) if timed else None)
        except TypeError as error:
            raise ProcessEnded("what its process sent is not what came of a run") from error


def run_shared(
    extension: Path,
    problem: AnyProblem,
    places: Mapping[str, Place],
    missing: list[str],
    outputs: list[str],
    device: str,
    timed: bool,
    arena: int,
) -> dict[str, Any]:
    """Runs the stage in a process of its own; ``arena`` is a descriptor of the tensors' memory. Returns the
    fields of the timing, if it is wanted.
    """
    torch.cuda.set_device(device)
    memory = mapped(arena)
    try:
        there = memory.to(device)
        tensors = {name: view(there, place) for name, place in places.items()}
        inputs: dict[str, torch.Tensor | None] = dict.fromkeys(missing)
        inputs |= {name: tensor for name, tensor in tensors.items() if name not in outputs}
        call(extension, problem, {**inputs, **tensors}, _stream())
        memory.copy_(there)
        return vars(_timing(extension, problem, inputs)) if timed else {}
    except RuntimeError as error:
        raise ExecutionError(str(error)) from error


def _timing(extension: Path, problem: AnyProblem, inputs: Tensors) -> timing.Timing:
    outputs = make_outputs(problem, "cuda")

    def run(inputs: Tensors) -> None:
        call(extension, problem, {**inputs, **outputs}, _stream())

    return timing.measure({"": run}, timing.input_sets(problem, inputs), _TIMED_SECONDS)[""]


def _current_device() -> int:
    """torch's current device, once CUDA is initialised."""
    device: int = torch._C._cuda_getDevice()
    return device


def _raw_stream(index: int) -> int:
    """The current stream of a device, without an object for it."""
    stream: int = torch._C._cuda_getCurrentRawStream(index)
    return stream


def _stream() -> int:
    return torch.cuda.current_stream().cuda_stream
