"""The backend interface, and what all backends share: NaN-filled outputs, comparisons of bits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ladder.common.isolation import Child
from ladder.common.words import listed
from ladder.compile import Target
from ladder.errors import ExecutionError
from ladder.operations import AnyProblem, Operation, Tensors, operation_of, torch_dtypes
from ladder.run.backends.extension import launch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ladder.run.backends.timing import Timing
    from ladder.run.emulator import Finding, Launch
    from ladder.stages import Stage


@dataclass(frozen=True)
class Treatment:
    """The choices of a run that CUDA leaves unspecified (:func:`ladder.run.emulator.session`), and the offset
    of the outputs from a 64-byte boundary. Of a launch only so many ``first_blocks`` or ``last_blocks`` run,
    or all if both are 0; the virtual GPU has so many ``multiprocessors``, or its own number if it is 0. With
    ``check`` the sanitizer watches. ``timing`` has the parameters of the model of time by name, and
    ``blocks`` how many blocks of each launch one multiprocessor runs.
    """

    backwards: bool = False
    unwritten: int = 0xFF
    skip_kernels: bool = False
    first_blocks: int = 0
    last_blocks: int = 0
    multiprocessors: int = 0
    offset_bytes: int = 0
    check: bool = False
    timing: tuple[tuple[str, float], ...] = ()
    blocks: tuple[int, ...] = ()


AS_USUAL = Treatment()


@dataclass(frozen=True)
class Execution:
    """One run's outputs by name, with its counts or its timing.

    ``host_uses`` says what the stage's host code did with the tensors, a sentence each; ``protections`` what
    its process had given up, see :func:`ladder.common.sandbox.enter`. A run under the sanitizer also has its
    ``findings``, remarks among them, and the ``failure`` that ended it, if any.
    """

    outputs: Mapping[str, Tensor]
    counters: Mapping[str, int | None] = field(default_factory=dict)
    timing: Timing | None = None
    launches: tuple[Launch, ...] = ()
    host_uses: tuple[str, ...] = ()
    protections: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    failure: ExecutionError | None = None
    timed: tuple[Mapping[str, Any], ...] = ()

    @property
    def time_ms(self) -> float | None:
        """The median time, or None if nothing was timed."""
        return None if self.timing is None else self.timing.median_ms


Self = TypeVar("Self", bound="Runner")


class Runner(ABC):
    """Runs one build of a stage in a process of its own, which begins with the first run and ends with the
    ``with`` block. This process never loads the build.
    """

    def __init__(self, extension: Path, target: Target) -> None:
        self.extension = extension
        self.target = target
        self._child: Child | None = None

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.close()

    @property
    def child(self) -> Child:
        """The process; a new one if it has ended."""
        if self._child is None or not self._child.is_alive:
            self._child = self._new_child()
        return self._child

    @abstractmethod
    def _new_child(self) -> Child: ...

    @abstractmethod
    def run(
        self,
        problem: AnyProblem,
        inputs: Tensors,
        *,
        treatment: Treatment = AS_USUAL,
        timed: bool = False,
        details: bool = False,
    ) -> Execution:
        """Runs the stage on inputs on the backend's device; the outputs are there, too.

        ``timed`` and ``details`` ask for the timing, and for counts by line of each launch; a backend that
        does not time or count has none. ``treatment`` is for backends that :attr:`Backend.varies`.

        Raises :class:`UnsupportedProblem` and :class:`ExecutionError`, of which :class:`ProcessEnded` says
        that the process ended or exceeded a limit.
        """


#: Calls the ``launch`` of a loaded build once, on tensors in the order that it was made for. Raises
#: :class:`UnsupportedProblem` if the stage refuses the problem, :class:`ExecutionError` if CUDA fails.
LaunchFunction = Callable[[Sequence["Tensor | None"]], None]


class Loaded(Protocol):
    """A build in this process, for callers that trust the stage."""

    def __call__(
        self, inputs: Sequence[str], outputs: Sequence[str], arguments: Mapping[str, Any], /
    ) -> LaunchFunction:
        """Its launch for the tensors of these names, inputs first, and the other fields of the problem's
        struct.
        """


class Backend(ABC):
    """Runs extensions built for its target."""

    name: str
    device: str
    #: Whether it counts kernels' work, and whether it times them.
    counts: bool
    times: bool
    #: Whether a problem always gives the same row, so that rows can be cached.
    is_exact: bool
    #: Whether a run can be treated otherwise than a GPU would, see :class:`Treatment`.
    varies: bool

    @abstractmethod
    def default_problem(self, operation: Operation) -> AnyProblem:
        """The problem that stages are compared on by default."""

    @abstractmethod
    def target(self, stage: Stage, arch: str | None) -> Target:
        """The target to build the stage for; ``arch`` is the user's choice, if any.

        Raises :class:`InvalidProblem` if no stage supports ``arch``, :class:`UnsupportedProblem` if this one
        does not.
        """

    @abstractmethod
    def runner(self, extension: Path, target: Target) -> Runner:
        """Runs this build of a stage, whose host code is not trusted."""

    @abstractmethod
    def loaded(self, extension: Path, target: Target, device: torch.device) -> Loaded:
        """A build of a stage, whose tensors are on this device."""


#: Size of each of the two frames that :func:`framed` puts around a tensor.
_FRAME_BYTES = 512


def framed(
    shape: Sequence[int], dtype: torch.dtype, device: str | torch.device, *, offset_bytes: int = 0
) -> Tensor:
    """Returns a contiguous tensor between two frames, ``offset_bytes`` past a 64-byte boundary.

    Tensor and frames are filled with NaN, or with the largest value of an integer dtype.
    """
    import torch

    size, items = dtype.itemsize, math.prod(shape)
    first = (_FRAME_BYTES + offset_bytes) // size
    length = first + items + _FRAME_BYTES // size
    memory = torch.full((length,), unwritten(dtype), dtype=dtype, device=device)
    return memory[first : first + items].view(*shape)


def frame_is_whole(memory: Tensor, tensor: Tensor) -> bool:
    """Whether the frames of a tensor of :func:`framed`, which has all of ``memory``, are intact there."""
    first = tensor.storage_offset()
    return is_unwritten(memory[:first]) and is_unwritten(memory[first + tensor.numel() :])


def unwritten(dtype: torch.dtype) -> float:
    """The value that outputs are filled with, so that elements a kernel fails to write can be found."""
    import torch

    return math.nan if dtype.is_floating_point else torch.iinfo(dtype).max


def is_unwritten(tensor: Tensor) -> bool:
    """Whether every element still holds the fill value of :func:`framed`."""
    if tensor.dtype.is_floating_point:
        return bool(tensor.isnan().all())
    return bool((tensor == unwritten(tensor.dtype)).all())


def make_outputs(
    problem: AnyProblem, device: str | torch.device, *, offset_bytes: int = 0, filled: bool = True
) -> dict[str, Tensor]:
    """Allocates the outputs between frames; with ``filled`` false, plain uninitialised tensors."""
    import torch

    dtypes = torch_dtypes()
    return {
        one.name: framed(one.shape, dtypes[one.dtype], device, offset_bytes=offset_bytes)
        if filled
        else torch.empty(one.shape, dtype=dtypes[one.dtype], device=device)
        for one in operation_of(problem).outputs(problem)
    }


def call(extension: Path, problem: AnyProblem, tensors: Tensors, stream: int) -> None:
    """Calls the extension's ``launch`` once, with inputs and outputs by name.

    Raises like :func:`ladder.run.backends.extension.launch`.
    """
    addresses = {name: 0 if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}
    launch(extension, addresses, operation_of(problem).arguments(problem, tensors), stream)


def require_untouched(inputs: Tensors, afterwards: Tensors) -> None:
    """Raises :class:`ExecutionError` if a stage has changed its inputs, which the reference depends on."""
    written = differing(inputs, afterwards)
    if written:
        raise ExecutionError(f"it writes to {listed(written)}, which it is only given to read")


def differing(some: Tensors, others: Tensors) -> list[str]:
    """The names of tensors that are not bit-identical."""
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

    def same(a: Tensor | None, b: Tensor | None) -> bool:
        if a is None or b is None:
            return a is b
        kind = integers[a.element_size()]
        return torch.equal(a.view(kind), b.view(kind))

    return [name for name, tensor in some.items() if not same(tensor, others[name])]
