"""The emulator: CPU tensors in, outputs and exact counts out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.backends.base import Backend, Execution, call, make_outputs
from ladder.build import EmulatorTarget, Target
from ladder.emulator import COUNTERS, Finding
from ladder.errors import ExecutionError
from ladder.operations import AnyProblem, Operation, Tensors
from ladder.stages import require_arch

if TYPE_CHECKING:
    from torch import Tensor

    from ladder.stages import Stage


@dataclass(frozen=True)
class Treatment:
    """The choices of a run that CUDA leaves unspecified (see :func:`ladder.emulator.session`), and the offset
    of the outputs from a 64-byte boundary. Of a launch only so many ``first_blocks`` or ``last_blocks`` run,
    or all if both are 0; the virtual GPU has so many ``multiprocessors``, or its own number if it is 0.
    """

    backwards: bool = False
    unwritten: int = 0xFF
    skip_kernels: bool = False
    first_blocks: int = 0
    last_blocks: int = 0
    multiprocessors: int = 0
    offset_bytes: int = 0


class EmulatorBackend(Backend):
    """Interprets the stage's PTX on the CPU. It counts; it never times."""

    name = "emulator"
    device = "cpu"
    counts = True
    times = False
    is_exact = True

    def default_problem(self, operation: Operation) -> AnyProblem:
        return operation.default_problem

    def target(self, stage: Stage, arch: str | None) -> Target:
        if arch is not None:
            require_arch(arch)
        return EmulatorTarget(stage.arch(arch))

    def execute(
        self,
        extension: Path,
        target: Target,
        problem: AnyProblem,
        inputs: Tensors,
        *,
        timed: bool = False,
        treatment: Treatment = Treatment(),
    ) -> Execution:
        outputs = make_outputs(problem, self.device, offset_bytes=treatment.offset_bytes)
        return self.execute_into(outputs, extension, target, problem, inputs, treatment)

    def execute_into(
        self,
        outputs: dict[str, Tensor],
        extension: Path,
        target: Target,
        problem: AnyProblem,
        inputs: Tensors,
        treatment: Treatment,
    ) -> Execution:
        """Like :meth:`execute`, with outputs that the caller has allocated."""
        return self._run(outputs, extension, target, problem, inputs, treatment, check=False)[0]

    def check(
        self,
        extension: Path,
        target: Target,
        problem: AnyProblem,
        inputs: Tensors,
        treatment: Treatment = Treatment(),
    ) -> tuple[Execution, list[Finding], ExecutionError | None]:
        """Runs :meth:`execute` under the sanitizer; also returns findings, remarks among them, and the error
        that ended the run, if any.
        """
        outputs = make_outputs(problem, self.device)
        return self._run(outputs, extension, target, problem, inputs, treatment, check=True)

    def _run(
        self,
        outputs: dict[str, Tensor],
        extension: Path,
        target: Target,
        problem: AnyProblem,
        inputs: Tensors,
        treatment: Treatment,
        *,
        check: bool,
    ) -> tuple[Execution, list[Finding], ExecutionError | None]:
        from ladder import emulator

        failure: ExecutionError | None = None
        memory = [
            (tensor.data_ptr(), _extent_bytes(tensor), name, name in outputs)
            for name, tensor in {**inputs, **outputs}.items()
            if tensor is not None and tensor.numel()
        ]
        with emulator.session(
            arch=target.arch,
            memory=emulator.merged_memory(memory),
            check=check,
            backwards=treatment.backwards,
            unwritten=treatment.unwritten,
            skip_kernels=treatment.skip_kernels,
            first_blocks=treatment.first_blocks,
            last_blocks=treatment.last_blocks,
            multiprocessors=treatment.multiprocessors,
        ) as session:
            try:
                call(extension, problem, {**inputs, **outputs}, stream=0)
            except ExecutionError as error:
                fault = emulator.last_fault()
                failure = ExecutionError(str(fault)) if fault else error
                if not check:
                    raise failure from error
            else:
                if fault := emulator.last_fault():
                    failure = ExecutionError(
                        str(fault), "The stage went on: it did not look at cudaGetLastError()."
                    )
                    if not check:
                        raise failure
            launches = tuple(session.launches)
        totals = add_totals(launch.totals() for launch in launches)
        return Execution(outputs, totals, launches=launches), [*session.findings, *session.remarks], failure


def _extent_bytes(tensor: Tensor) -> int:
    """The bytes from the first element to the end of the last, including gaps between strided rows."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def add_totals(totals: Iterable[dict[str, int | None]]) -> dict[str, int | None]:
    """Sums the counter columns over launches; a counter that any launch does not know becomes None."""
    total: dict[str, int | None] = {}
    for launch in totals:
        for name in COUNTERS:
            value, so_far = launch.get(name), total.get(name, 0)
            total[name] = None if value is None or so_far is None else so_far + value
    return total
