"""Triton's kernels on the emulator: a driver for a GPU of its own, which Triton takes for one of NVIDIA's.

Triton compiles for the driver's target, so its own specialisation, heuristics and caches work unchanged.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import CompiledKernel
from triton.runtime.driver import driver

from ladder.errors import UnsupportedProblem
from ladder.run.emulator import InOut, Module, virtual_gpus
from ladder.run.foreign.launched import Counted

#: How a scalar of Triton is laid out as a kernel's parameter.
_LAYOUTS = {
    "i1": "<b", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q", "u1": "<B", "u8": "<B", "u16": "<H",
    "u32": "<I", "u64": "<Q", "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip


class _Utilities:
    """What Triton asks of a driver about its GPU."""

    def __init__(self, arch: str) -> None:
        self._gpu = next(gpu for gpu in virtual_gpus() if gpu.arch == arch)

    def get_device_properties(self, device: object) -> dict[str, int]:
        return {
            "max_shared_mem": self._gpu.shared_bytes_per_block_opt_in,
            "multiprocessor_count": self._gpu.multiprocessors,
            "max_num_regs": self._gpu.registers_per_multiprocessor,
            "warpSize": 32,
            "sm_clock_rate": 0,
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }

    def unload_module(self, module: object) -> None:
        """Modules are freed with their kernels."""


class _Driver:
    """The driver that Triton sees during :func:`emulated`."""

    def __init__(self, arch: str) -> None:
        self.utils = _Utilities(arch)
        # Triton keeps compiled kernels by device.
        self._device = f"emulated {arch}"
        self._target = GPUTarget("cuda", int("".join(filter(str.isdigit, arch))), 32)

    def get_current_device(self) -> str:
        return self._device

    def set_current_device(self, device: object) -> None:
        """There is one."""

    def get_current_stream(self, device: object = None) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        """Time is not emulated, so the autotuner takes the first configuration that it is given."""
        return lambda kernel_call, *, quantiles=None, **others: [0.0] * len(quantiles or [0.5])

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """There is none."""


@contextmanager
def emulated(counted: Counted) -> Iterator[None]:
    """Launches of Triton's kernels run on the emulator and are kept in ``counted``."""
    before, own = driver._active, CompiledKernel._init_handles

    def prepared(kernel: Any) -> None:
        if kernel.module is None:
            _require_simple(kernel)
            kernel.module = Module(kernel.asm["ptx"], counted.arch)
            kernel._module_pid = os.getpid()
            kernel.function = kernel.name
        kernel._run = _Launcher(kernel, counted)

    driver.set_active(_Driver(counted.arch))
    CompiledKernel._init_handles = prepared
    run = CompiledKernel.run
    # A kernel that an earlier block has launched keeps its module, but this block counts it.
    CompiledKernel.run = property(lambda kernel: _Launcher(_made(kernel), counted))
    try:
        yield
    finally:
        driver._active = before
        CompiledKernel._init_handles, CompiledKernel.run = own, run


def _made(kernel: Any) -> Any:
    kernel._init_handles()
    return kernel


def _require_simple(kernel: Any) -> None:
    if kernel.metadata.num_ctas > 1:
        raise UnsupportedProblem(
            f"{kernel.name} is launched with num_ctas={kernel.metadata.num_ctas}",
            "The emulator runs num_ctas=1.",
        )
    if described := [ty for ty in kernel.src.signature.values() if str(ty).startswith("tensordesc")]:
        raise UnsupportedProblem(
            f"{kernel.name} takes a tensor descriptor ({described[0]})",
            "Make it in the kernel, or load through pointers.",
        )


class _Launcher:
    """Launches one compiled kernel, as Triton's own launchers are called."""

    def __init__(self, kernel: Any, counted: Counted) -> None:
        self._kernel = kernel
        self._counted = counted

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: object,
        function: str,
        packed: object,
        metadata: object,
        enter: object,
        leave: object,
        *values: object,
    ) -> None:
        if not grid_x * grid_y * grid_z:  # Triton launches nothing then
            return
        kernel, about = self._kernel, self._kernel.metadata
        arguments = list(_arguments(tuple(kernel.src.signature.values()), values))
        for size, alignment in (
            (about.global_scratch_size, about.global_scratch_align),
            (about.profile_scratch_size, about.profile_scratch_align),
        ):
            room = size * grid_x * grid_y * grid_z
            arguments.append(InOut(torch.zeros(room + alignment, dtype=torch.uint8)) if size else bytes(8))
        threads = 32 * about.num_warps
        grid = (grid_x, grid_y, grid_z)
        self._counted.launch(kernel.module, kernel.name, grid, (threads, 1, 1), arguments, about.shared)


def _arguments(types: Sequence[Any], values: Sequence[Any]) -> Iterator[object]:
    """The kernel's parameters: the constants are compiled in, and tuples are taken apart."""
    for kind, value in zip(types, values, strict=True):
        if isinstance(kind, tuple):
            yield from _arguments(kind, value)
        elif kind == "constexpr":
            continue
        elif kind.startswith("*"):
            yield InOut(value) if isinstance(value, torch.Tensor) else struct.pack("<Q", int(value or 0))
        elif kind == "bf16":
            yield struct.pack("<f", float(value))[2:]
        else:
            number = float(value) if kind.startswith("f") else int(value)
            yield struct.pack(_LAYOUTS[kind], number)
