"""The backend interface, and what all backends share: loading extensions, NaN-filled outputs, launching."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from ladder.build import Target
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.operations import AnyProblem, Operation, Tensors, operation_of, torch_dtypes

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ladder.backends.timing import Timing
    from ladder.emulator import Launch
    from ladder.stages import Stage


@dataclass(frozen=True)
class Execution:
    """One run's outputs by name, with its counts or its timing."""

    outputs: Mapping[str, Tensor]
    counters: Mapping[str, int | None] = field(default_factory=dict)
    timing: Timing | None = None
    launches: tuple[Launch, ...] = ()

    @property
    def time_ms(self) -> float | None:
        """The median time, or None if nothing was timed."""
        return None if self.timing is None else self.timing.median_ms


class Backend(ABC):
    """Runs extensions built for its target."""

    name: str
    device: str
    #: Whether it counts kernels' work, and whether it times them.
    counts: bool
    times: bool
    #: Whether a problem always gives the same row, so that rows can be cached.
    is_exact: bool

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
    def execute(
        self,
        extension: Path,
        target: Target,
        problem: AnyProblem,
        inputs: Tensors,
        *,
        timed: bool = False,
    ) -> Execution:
        """Runs the extension on contiguous inputs on this backend's device.

        Raises :class:`UnsupportedProblem` or :class:`ExecutionError`.
        """

    def compute(
        self, extension: Path, target: Target, problem: AnyProblem, inputs: Tensors
    ) -> dict[str, Tensor]:
        """The outputs of :meth:`execute` by name; each owns its storage, as a compiled graph assumes."""
        outputs = self.execute(extension, target, problem, inputs).outputs
        return {name: output.clone() for name, output in outputs.items()}


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


def frame_is_whole(tensor: Tensor) -> bool:
    """Whether the frames of a tensor of :func:`framed` are intact."""
    memory = tensor._base
    assert memory is not None
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


#: How the name of the function that a kernel.cu defines begins in a library.
_LAUNCH = "_ZN6ladder6launchE"


@functools.cache
def _load(extension: Path) -> ModuleType:
    # pybind11 keeps one module per full name, but derives the init function from the last component only.
    name = f"{extension.parent.name}.ladder_stage"
    loader = importlib.machinery.ExtensionFileLoader(name, str(extension))
    spec = importlib.util.spec_from_file_location(name, extension, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def call(extension: Path, problem: AnyProblem, tensors: Tensors, stream: int) -> None:
    """Calls the extension's ``launch`` once, with inputs and outputs by name.

    Raises :class:`UnsupportedProblem` if the stage refuses the problem, :class:`ExecutionError` if CUDA
    fails.
    """
    try:
        launch = _load(extension).launch
    except (ImportError, AttributeError) as error:
        if _LAUNCH in str(error):
            raise ExecutionError(
                "its kernel.cu defines no ladder::launch for this problem",
                "Another rung of the operation shows what it takes: void ladder::launch(const ...Problem &p, "
                "cudaStream_t stream).",
            ) from None
        raise ExecutionError(f"{extension} cannot be loaded: {error}") from error
    pointers = {name: 0 if tensor is None else tensor.data_ptr() for name, tensor in tensors.items()}
    try:
        launch(**pointers, **operation_of(problem).arguments(problem, tensors), stream=stream)
    except ValueError as error:
        raise UnsupportedProblem(str(error)) from error
    except Exception as error:
        raise ExecutionError(str(error)) from error
