"""The emulator: CPU tensors in, outputs and exact counts out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ladder.common import isolation
from ladder.common.isolation import Child, ProcessEnded
from ladder.common.words import listed
from ladder.compile import EmulatorTarget, Target
from ladder.operations import AnyProblem, Operation, Tensors, address_of, extent_bytes, operation_of
from ladder.run import emulator
from ladder.run.backends.base import (
    AS_USUAL,
    Backend,
    Execution,
    LaunchFunction,
    Loaded,
    Runner,
    Treatment,
    make_outputs,
    require_untouched,
    unwritten,
)
from ladder.run.backends.emulation import Emulation, Lent, emulate, emulate_shared
from ladder.run.emulator import COUNTERS, variables
from ladder.stages import Stage, require_arch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ladder.run.backends.arena import Arena

#: What a child needs, to be imported before it is forked.
_PRELOAD = (emulate.__module__,)
#: What a run may take besides three times the memory of its tensors: a kernel that writes all over reserved
#: memory takes more.
_MOST_BYTES = 4 * 2**30
#: A run may take so many seconds, and one more for so many operations of its problem: under the sanitizer
#: the slowest rung needs a thirtieth of it.
_SECONDS, _FLOPS_PER_SECOND = 60.0, 1e5

_USES = {
    "touched": "its host code reads or writes {}: on a GPU that memory is out of its reach",
    "copied to the host": "it copies {} to the host, where nothing is to be computed",
    "copied from the host": "it copies {} from the host: kernels are to write it",
    "on another stream": "it launches, copies, fills or allocates on another stream than the one it is given",
}


#: What is left of the seconds that the runs within :func:`shared_minute` share.
_left: ContextVar[list[float] | None] = ContextVar("left", default=None)


@contextmanager
def shared_minute() -> Iterator[None]:
    """Within the block the runs of this thread share ``_SECONDS``, besides the seconds for their operations;
    once these are used up, a run has one.
    """
    token = _left.set([_SECONDS])
    try:
        yield
    finally:
        _left.reset(token)


class EmulatorBackend(Backend):
    """Interprets the stage's PTX on the CPU. It counts; it never times."""

    name = "emulator"
    device = "cpu"
    counts = True
    times = False
    is_exact = True
    varies = True

    def default_problem(self, operation: Operation) -> AnyProblem:
        return operation.default_problem

    def target(self, stage: Stage, arch: str | None) -> Target:
        if arch is not None:
            require_arch(arch)
        return EmulatorTarget(stage.arch(arch))

    def runner(self, extension: Path, target: Target) -> EmulatorRunner:
        return EmulatorRunner(extension, target)

    def loaded(self, extension: Path, target: Target, device: torch.device) -> Loaded:
        del device

        def made(
            inputs: Sequence[str], outputs: Sequence[str], arguments: Mapping[str, Any], /
        ) -> LaunchFunction:
            names, first_output = [*inputs, *outputs], len(inputs)

            def launch(tensors: Sequence[Tensor | None]) -> None:
                for output in tensors[first_output:]:
                    if output is not None:
                        output.fill_(unwritten(output.dtype))
                lent = [
                    Lent(name, 0, 0, False)
                    if tensor is None
                    else Lent(name, address_of(tensor), extent_bytes(tensor), number >= first_output)
                    for number, (name, tensor) in enumerate(zip(names, tensors, strict=True))
                ]
                emulation = emulate(extension, lent, arguments, _session(target, AS_USUAL))
                if emulation.failure:
                    raise emulation.failure

            return launch

        return made


class EmulatorRunner(Runner):
    """Runs a build on the emulator, which is in the same process. That may write in an empty folder alone."""

    def __init__(self, extension: Path, target: Target) -> None:
        super().__init__(extension, target)
        self._folder = tempfile.TemporaryDirectory(prefix="ladder-")
        isolation.warm_up(_PRELOAD)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._folder.cleanup()

    def _new_child(self) -> Child:
        return Child(preload=_PRELOAD, folder=Path(self._folder.name))

    def run(
        self,
        problem: AnyProblem,
        inputs: Tensors,
        *,
        treatment: Treatment = AS_USUAL,
        timed: bool = False,
        details: bool = False,
    ) -> Execution:
        from ladder.run.backends.arena import Arena

        outputs = make_outputs(problem, "cpu", offset_bytes=treatment.offset_bytes)
        tensors = {**inputs, **outputs}
        with Arena.of(tensors) as arena:
            most = _MOST_BYTES + 3 * arena.bytes
            emulation = self.run_in(arena, problem, tensors, outputs, treatment, most, details=details)
            if emulation.failure and not treatment.check:
                raise emulation.failure
            require_untouched(inputs, {name: arena.get(name) for name in inputs})
            written = {name: arena[name].clone() for name in outputs}
        kinds = {
            name: tensor.dtype.is_floating_point for name, tensor in tensors.items() if tensor is not None
        }
        faults, remarks = emulator.parse_findings(emulation.findings)
        return Execution(
            written,
            add_totals(launch.totals() for launch in emulation.launches),
            launches=tuple(emulation.launches),
            host_uses=tuple(_sentences(emulation, kinds)),
            protections=tuple(self.child.protections),
            findings=(*faults, *remarks),
            failure=emulation.failure,
            timed=tuple(emulation.timed),
        )

    def run_in(
        self,
        arena: Arena,
        problem: AnyProblem,
        tensors: Tensors,
        outputs: Iterable[str],
        treatment: Treatment,
        memory_bytes: int = _MOST_BYTES,
        *,
        details: bool = False,
    ) -> Emulation:
        """Like :meth:`run`, on the tensors of an arena; ``tensors`` also has those that the problem lacks.

        The failure of the run is not raised.
        """
        writable = set(outputs)
        lent = [
            Lent(name, place.begin, place.bytes, name in writable) for name, place in arena.places.items()
        ]
        lent += [Lent(name, -1, 0, False) for name, tensor in tensors.items() if tensor is None]
        arguments = operation_of(problem).arguments(problem, tensors)
        session = {**_session(self.target, treatment), "watch_host": True}
        child = self.child
        child.memory_bytes = memory_bytes
        left = _left.get() or [_SECONDS]
        own, begin = problem.flops / _FLOPS_PER_SECOND, time.monotonic()
        answer = child.ask(
            *(emulate_shared, self.extension, lent, arguments, session, details),
            descriptors=[arena.descriptor],
            seconds=left[0] + own,
        )
        left[0] = max(left[0] - max(time.monotonic() - begin - own, 0.0), 1.0)
        try:
            return Emulation.from_data(answer)
        except Exception as error:  # whatever it is that reading something else raises
            child.close()
            raise ProcessEnded("what its process sent is not what came of a run") from error


def _session(target: Target, treatment: Treatment) -> dict[str, Any]:
    """The parameters of the session, with what the environment of this process and this context say."""
    return {
        "arch": target.arch,
        "threads": variables.number(variables.THREADS, 0),
        "instruction_limit": variables.most_instructions(0),
        "check": treatment.check,
        "backwards": treatment.backwards,
        "unwritten": treatment.unwritten,
        "skip_kernels": treatment.skip_kernels,
        "first_blocks": treatment.first_blocks,
        "last_blocks": treatment.last_blocks,
        "multiprocessors": treatment.multiprocessors,
        "timing": dict(treatment.timing),
        "blocks": list(treatment.blocks),
    }


def _sentences(emulation: Emulation, is_float: Mapping[str, bool]) -> Iterable[str]:
    """What the host did that it should not, a sentence for each kind; it may look at numbers that say where
    others lie.
    """
    for kind, sentence in _USES.items():
        used = [
            name or "memory of cudaMalloc"
            for names, use in emulation.host_uses
            if use == kind
            for name in names.split(", ")
        ]
        names = [name for name in used if is_float.get(name, True) or kind != "copied to the host"]
        if names:
            yield sentence.format(listed(sorted(names)))


def add_totals(totals: Iterable[dict[str, int | None]]) -> dict[str, int | None]:
    """Sums the counter columns over launches; a counter that any launch does not know becomes None."""
    total: dict[str, int | None] = {}
    for launch in totals:
        for name in COUNTERS:
            value, so_far = launch.get(name), total.get(name, 0)
            total[name] = None if value is None or so_far is None else so_far + value
    return total
