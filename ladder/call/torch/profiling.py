"""What marks and measures parts of a program for profilers: the CPU's work alone is recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import profiler


def install() -> None:
    """Makes ``torch.cuda.nvtx``, ``torch.cuda.profiler`` and ``torch.profiler`` callable."""
    torch.cuda.nvtx._nvtx = _Markers  # type: ignore[assignment]
    torch.cuda._cudart = _Runtime
    begin = profiler.profile.__init__

    def without_device(self: Any, *arguments: Any, **named: Any) -> None:
        if named.get("use_device") == "cuda" or named.get("use_cuda"):
            named |= {"use_device": None, "use_cuda": False, "use_cpu": True}
        begin(self, *arguments, **named)

    profiler.profile.__init__ = without_device  # type: ignore[method-assign]


class _Runtime:
    """What programs call of ``torch.cuda.cudart()``."""

    cudaError = SimpleNamespace(success=0)

    @staticmethod
    def cudaProfilerStart() -> int:
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:
        return 0


class _Markers:
    """NVTX, without a profiler that listens."""

    @staticmethod
    def rangePushA(message: str) -> int:
        return 0

    @staticmethod
    def rangePop() -> int:
        return 0

    @staticmethod
    def rangeStartA(message: str) -> int:
        return 0

    @staticmethod
    def rangeEnd(handle: int) -> None:
        pass

    @staticmethod
    def markA(message: str) -> None:
        pass
