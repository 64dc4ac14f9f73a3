"""The device's memory as torch's Python code sees it: statistics, and copies of storages."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

#: The statistics of torch's caching allocator. Nothing is cached here, so all that is reserved is in use.
_BYTES = ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes")
_COUNTS = ("allocation", "active", "segment")
_NEVER = ("inactive_split_bytes", "inactive_split", "oversize_allocations", "oversize_segments")
_POOLS = ("all", "large_pool", "small_pool")
_PAST = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")


def install(device_library: Path) -> None:
    """Makes ``torch.cuda.memory_allocated`` and the like tell what tensors on the device take, and storages
    of the device copyable. ``device_library`` is the loaded :func:`device_library`.
    """
    library = ctypes.CDLL(str(device_library))
    torch._C._cuda_memoryStats = lambda device: _statistics(library)
    torch._C._cuda_resetPeakMemoryStats = lambda device: library.ladder_torch_reset_peak_memory()
    torch._C._cuda_resetAccumulatedMemoryStats = lambda device: None
    torch.serialization.register_package(15, lambda storage: None, _loaded_on_device)  # before torch's, 20
    clone = torch.UntypedStorage.clone
    torch.UntypedStorage.clone = (  # type: ignore[method-assign]
        lambda storage: _on_device(storage) if storage.is_cuda else clone(storage)
    )


def _statistics(library: ctypes.CDLL) -> dict[str, Any]:
    """In the form of ``torch.cuda.memory_stats_as_nested_dict``."""
    totals = (ctypes.c_int64 * 6)()
    library.ladder_torch_memory_use(totals)
    of_bytes, of_counts, of_nothing = _row(*totals[:3]), _row(*totals[3:]), _row(0, 0, 0)
    rows = {
        **dict.fromkeys(_BYTES, of_bytes),
        **dict.fromkeys(_COUNTS, of_counts),
        **dict.fromkeys(_NEVER, of_nothing),
    }
    return {
        **{
            name: {pool: row if pool != "small_pool" else of_nothing for pool in _POOLS}
            for name, row in rows.items()
        },
        **{name: rows[name] for name in _NEVER[2:]},
        **dict.fromkeys(_PAST, 0),
    }


def _row(current: int, peak: int, ever: int) -> dict[str, int]:
    return {"current": current, "peak": peak, "allocated": ever, "freed": ever - current}


def _on_device(storage: Any) -> Any:
    """A copy on the device. torch's own way needs a constructor of its CUDA build."""
    view = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return view.to("cuda", copy=True).untyped_storage()


def _loaded_on_device(storage: Any, location: str) -> Any:
    """For ``torch.load``."""
    return _on_device(storage) if location.startswith("cuda") else None
