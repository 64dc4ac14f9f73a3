"""The Python side of the device: what torch's CPU build lacks in ``torch.cuda``, ``torch._C`` and
``torch.utils.cpp_extension``.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ladder.call.torch import memory, on_host, profiling
from ladder.call.torch.build_lock import BuildLock
from ladder.call.torch.device_library import HEADERS
from ladder.errors import UnsupportedProblem
from ladder.run.emulator import virtual_gpus
from ladder.stages import DEFAULT_ARCH

#: What torch says of a build for CUDA 13.0, the version of the emulated runtime.
_CUDA_VERSION = "13.0"
_DEVICE = torch.device("cuda", 0)


@dataclass(frozen=True)
class DeviceProperties:
    """The fields of torch's properties of a CUDA device that programs read."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    regs_per_multiprocessor: int
    max_threads_per_multi_processor: int
    max_threads_per_block: int = 1024
    warp_size: int = 32
    L2_cache_size: int = 40 * 2**20
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    gcnArchName: str = ""


def properties(device: Any = None) -> DeviceProperties:
    """The virtual GPU's, for ``torch.cuda.get_device_properties``."""
    _require(torch.cuda._utils._get_device_index(device, optional=True))
    arch = os.environ.get("LADDER_ARCH") or DEFAULT_ARCH
    gpu = next(gpu for gpu in virtual_gpus() if gpu.arch == arch)
    digits = re.sub(r"\D", "", arch)
    return DeviceProperties(
        name=gpu.name,
        major=int(digits[:-1]),
        minor=int(digits[-1]),
        total_memory=_memory()[1],
        multi_processor_count=gpu.multiprocessors,
        shared_memory_per_block=gpu.shared_bytes_per_block,
        shared_memory_per_block_optin=gpu.shared_bytes_per_block_opt_in,
        shared_memory_per_multiprocessor=gpu.shared_bytes_per_multiprocessor,
        regs_per_multiprocessor=gpu.registers_per_multiprocessor,
        max_threads_per_multi_processor=gpu.max_threads_per_multiprocessor,
    )


def _memory() -> tuple[int, int]:
    """Bytes of host memory that are free, and all of them."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _require(index: int) -> int:
    if index > 0:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: there is one emulated GPU, and no cuda:{index}"
        )
    return 0


class Stream(torch.Stream):
    """``torch.cuda.Stream``: work on it is complete when the call returns."""

    priority = 0

    def __new__(cls, device: Any = None, priority: int = 0, **others: Any) -> Stream:
        if others:  # another handle of a stream
            return super().__new__(cls, **others)
        made = super().__new__(cls, device=_DEVICE, priority=priority)
        made.priority = priority
        return made

    @property
    def cuda_stream(self) -> int:
        return int(self.stream_id)

    def record_event(self, event: Any = None) -> Event:  # type: ignore[override]
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Work is complete when its call returns."""

    def wait_stream(self, stream: Any) -> None:
        """The same."""


def _external_stream(stream_ptr: int, device: Any = None) -> Stream:
    """``torch.cuda.ExternalStream``: a stream's id is its ``cudaStream_t``."""
    return Stream(stream_id=stream_ptr, device_index=0, device_type=_current_stream().device_type)


class Event:
    """``torch.cuda.Event``. Its times are those of the emulation, not a GPU's."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        if interprocess:
            raise UnsupportedProblem("torch.cuda.Event(interprocess=True) is not emulated")
        self._is_timed = enable_timing
        self._time_s: float | None = None

    def record(self, stream: Any = None) -> None:
        self._time_s = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """Work is complete when its call returns."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        _synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of this machine between two events. Raises RuntimeError unless both are recorded."""
        begin_s, end_s = self._time_s, end_event._time_s
        if begin_s is None or end_s is None or not (self._is_timed and end_event._is_timed):
            raise RuntimeError("Both events must be created with enable_timing=True and be recorded")
        return 1e3 * (end_s - begin_s)


def _as_stream(stream: Any) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=0, device_type=stream.device_type)


def _current_stream(device: Any = None) -> Any:
    return _as_stream(torch.accelerator.current_stream())


def _default_stream(device: Any = None) -> Any:
    return Stream(stream_id=0, device_index=0, device_type=_current_stream().device_type)


class _StreamContext:
    """``torch.cuda.stream``."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._before = torch.accelerator.current_stream()
        if self.stream is not None:
            torch.accelerator.set_stream(self.stream)

    def __exit__(self, *what: object) -> None:
        torch.accelerator.set_stream(self._before)


def _synchronize(device: Any = None) -> None:
    torch.accelerator.synchronize()


def _scattered(tensor: torch.Tensor, *_: Any) -> tuple[torch.Tensor]:
    """The shares of all devices of a ``DataParallel``: there is one."""
    return (tensor.to(_DEVICE),)


def _refused(name: str, instead: str) -> Callable[..., Any]:
    def call(*arguments: object, **named: object) -> Any:
        raise UnsupportedProblem(f"{name} is not emulated", instead)

    return call


def _compiled(function: Any = None, **options: Any) -> Any:
    """``torch.compile``: Triton kernels would be emulated more slowly than the operations are computed."""
    return (lambda compiled: compiled) if function is None else function


def _missing_in_c(name: str) -> Any:
    """For names that ``torch._C`` lacks. It stays an AttributeError: torch asks for some with ``hasattr``."""
    if name.startswith("_cuda_"):
        raise AttributeError(f"torch._C.{name} of torch's CUDA build is not emulated")
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")


def install(device_library: Path) -> None:
    """Adds what is missing to torch's modules. ``device_library`` is loaded."""
    torch.version.cuda = _CUDA_VERSION
    memory.install(device_library)
    on_host.install()
    profiling.install()
    torch.compile = _compiled  # type: ignore[assignment]
    _complete_c()
    _complete_cuda()
    _complete_extensions()


def _complete_c() -> None:
    """The functions of ``torch._C`` that torch's own Python code calls for CUDA."""
    generator = torch.default_generator
    functions: dict[str, Callable[..., Any]] = {
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": _require,
        "_cuda_init": lambda: None,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_synchronize": _synchronize,
        "_cuda_emptyCache": lambda: None,
        "_cuda_getArchFlags": lambda: "",
        "_cuda_getCompiledVersion": lambda: 13000,
        "_cuda_getCurrentRawStream": lambda device: _current_stream().cuda_stream,
        "_cuda_canDeviceAccessPeer": lambda device, peer: False,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_hasPrimaryContext": lambda device: True,
        "_cuda_get_sync_debug_mode": lambda: 0,
        "_cuda_set_sync_debug_mode": lambda mode: None,
        "_cuda_clearCublasWorkspaces": lambda: None,
        "_cuda_exchangeDevice": _require,
        "_cuda_maybeExchangeDevice": _require,
        "_cuda_setMemoryFraction": lambda fraction, device: None,
        "_scatter": _scattered,
        "_cuda_CUDAAllocator_AllocatorState": object,  # of graphs; torch._dynamo.reset() imports it
    }
    for name, function in functions.items():
        setattr(torch._C, name, function)
    torch._C.__getattr__ = _missing_in_c  # type: ignore[method-assign]
    torch.cuda.default_generators = (generator,)


def _complete_cuda() -> None:
    cuda = torch.cuda
    cuda._initialized = True  # nothing is left to do when a tensor is first made
    cuda._queued_calls.clear()
    names: dict[str, Any] = {
        "_is_in_bad_fork": lambda: False,
        "_exchange_device": _require,
        "_maybe_exchange_device": _require,
        "_get_device_properties": properties,
        "get_device_properties": properties,
        "device_count": lambda: 1,
        "is_available": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: properties().major >= 8,
        "get_arch_list": lambda: [os.environ.get("LADDER_ARCH") or DEFAULT_ARCH],
        "Stream": Stream,
        "ExternalStream": _external_stream,
        "Event": Event,
        "stream": _StreamContext,
        "StreamContext": _StreamContext,
        "current_stream": _current_stream,
        "default_stream": _default_stream,
        "set_stream": torch.accelerator.set_stream,
        "synchronize": _synchronize,
        "mem_get_info": lambda device=None: _memory(),
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "manual_seed": torch.default_generator.manual_seed,
        "manual_seed_all": torch.default_generator.manual_seed,
        "seed": torch.default_generator.seed,
        "seed_all": torch.default_generator.seed,
    }
    graphs = "Leave the graph out: launches of the emulator cost no time that a graph would save."
    for name in ("CUDAGraph", "graph", "make_graphed_callables"):
        names[name] = _refused(f"torch.cuda.{name}", graphs)
    for name, value in names.items():
        setattr(cuda, name, value)
    torch.backends.cuda.is_built = lambda: True


def _complete_extensions() -> None:
    """``torch.utils.cpp_extension`` finds the headers that stand in for those of torch's CUDA build."""
    from torch.utils import cpp_extension

    cpp_extension.CUDA_HOME = os.environ["CUDA_HOME"]
    include_paths = cpp_extension.include_paths
    load = cpp_extension._import_module_from_library

    def with_own(*arguments: Any, **named: Any) -> list[str]:
        return [str(HEADERS), *include_paths(*arguments, **named)]

    def explained(*arguments: Any) -> Any:
        try:
            return load(*arguments)
        except (ImportError, OSError) as error:
            if missing := re.search(r"undefined symbol: (\w+)", str(error)):
                raise missing_function(missing[1]) from error
            raise

    cpp_extension.FileBaton = BuildLock  # type: ignore[assignment,misc]
    cpp_extension.include_paths = with_own
    cpp_extension._import_module_from_library = explained


def missing_function(symbol: str) -> UnsupportedProblem:
    """The error for an extension that calls a function that does not exist here."""
    try:
        name = subprocess.run(["c++filt", symbol], capture_output=True, text=True).stdout.strip() or symbol
    except OSError:
        name = symbol
    kind = {"cu": "CUDA's", "no": "a library's"}.get(name[:2], "a library's")
    return UnsupportedProblem(
        f"the extension calls {name}, {kind} function that is not emulated",
        "emulator/runtime/api/entry_points.def lists the functions of CUDA that are. Of torch, extensions "
        "may call its C++ interface for tensors, and what the headers in ladder/call/torch/include have.",
    )
