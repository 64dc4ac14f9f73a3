"""What Numba's kernels and host code use of a CUDA device, besides launches: arrays, streams, events, its
compute capability.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from numba import config, cuda
from numba.cuda import compiler, dispatcher
from numba.cuda.cudadrv.error import CudaSupportError

from ladder.errors import UnsupportedProblem
from ladder.run.emulator import virtual_gpus

#: Threads per block of ``kernel.forall(n)``, which asks the driver for the most that fit.
_FORALL_THREADS = 256


class DeviceArray(np.ndarray):
    """An array that ``cuda.to_device`` and ``cuda.device_array`` return within :func:`emulated`."""

    def copy_to_host(self, ary: np.ndarray | None = None, stream: object = None) -> np.ndarray:
        """A copy, or the contents written to ``ary``."""
        if ary is None:
            return np.array(self)
        ary[...] = self
        return ary

    def copy_to_device(self, ary: np.ndarray, stream: object = None) -> None:
        self[...] = ary


def _to_device(values: Any, stream: object = None, copy: bool = True, to: Any = None) -> DeviceArray:
    if to is not None:
        to[...] = values
        return to
    return np.array(values).view(DeviceArray)


def _device_array(
    shape: Any, dtype: Any = np.float64, strides: object = None, order: str = "C", **_: object
) -> Any:
    made: np.ndarray = np.empty(shape, dtype=dtype, order="F" if order == "F" else "C")
    return made.view(DeviceArray)


def _device_array_like(values: Any, stream: object = 0) -> Any:
    return _device_array(values.shape, values.dtype)


class _Stream:
    """``cuda.stream()``: work is complete when a launch returns."""

    def synchronize(self) -> None:
        pass

    @contextmanager
    def auto_synchronize(self) -> Iterator[_Stream]:
        yield self


class _Event:
    """``cuda.event()``. Its times are those of the emulation."""

    def __init__(self, timing: bool = True) -> None:
        self.time_s = 0.0

    def record(self, stream: object = 0) -> None:
        self.time_s = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def wait(self, stream: object = 0) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds of this machine from this event to ``end``."""
        return 1e3 * (end.time_s - self.time_s)


class _Device:
    """``cuda.get_current_device()``."""

    id = 0

    def __init__(self, arch: str) -> None:
        (gpu,) = (gpu for gpu in virtual_gpus() if gpu.arch == arch)
        self.compute_capability = compute_capability(arch)
        self.name = gpu.name.encode()
        self.WARP_SIZE = 32
        self.MAX_THREADS_PER_BLOCK = 1024
        self.MULTIPROCESSOR_COUNT = gpu.multiprocessors
        self.MAX_SHARED_MEMORY_PER_BLOCK = gpu.shared_bytes_per_block


def compute_capability(arch: str) -> tuple[int, int]:
    """(8, 0) of "sm_80"."""
    digits = "".join(filter(str.isdigit, arch))
    return int(digits[:-1]), int(digits[-1])


def _launch_for_all(launcher: Any, *arguments: Any) -> None:
    """``kernel.forall(n)(...)``."""
    if launcher.ntasks:
        threads = launcher.thread_per_block or _FORALL_THREADS
        blocks = -(-launcher.ntasks // threads)
        launcher.dispatcher[blocks, threads, launcher.stream, launcher.sharedmem](*arguments)


_REPLACED: dict[str, Callable[..., Any]] = {
    "to_device": _to_device,
    "device_array": _device_array,
    "device_array_like": _device_array_like,
    "pinned_array": _device_array,
    "mapped_array": _device_array,
    "synchronize": lambda: None,
    "is_available": lambda: True,
    "stream": _Stream,
    "event": _Event,
    "event_elapsed_time": lambda start, end: start.elapsed_time(end),
}


@contextmanager
def emulated_device(arch: str) -> Iterator[None]:
    """Numba's functions for a device work without one. What needs the driver raises
    :class:`UnsupportedProblem` at the end of the block.
    """
    device = _Device(arch)
    with ExitStack() as changes:
        for name, value in _REPLACED.items():
            changes.enter_context(mock.patch.object(cuda, name, value))
        # Device functions are compiled for the current device.
        for module in (cuda, compiler, dispatcher):
            changes.enter_context(mock.patch.object(module, "get_current_device", lambda: device))
        changes.enter_context(mock.patch.object(dispatcher.ForAll, "__call__", _launch_for_all))
        changes.enter_context(mock.patch.object(config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0))
        changes.enter_context(mock.patch.dict(os.environ, _nvvm()))
        try:
            yield
        except CudaSupportError as error:
            raise UnsupportedProblem(
                "the block uses a part of Numba that needs the driver of a GPU",
                "Kernels of @cuda.jit without a signature, device functions, arrays, streams and events are "
                "emulated.",
            ) from error


def _nvvm() -> dict[str, str]:
    """Numba's compiler for PTX comes with the pinned CUDA compiler, unless the user has a CUDA of his own."""
    if os.environ.get("CUDA_HOME"):
        return {}
    from ladder.compile import pinned_nvcc

    return {"CUDA_HOME": str(pinned_nvcc().home)}
