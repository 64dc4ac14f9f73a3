"""Where a stage runs: on the emulator or on this machine's GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.backends.arena import Arena
    from ladder.backends.base import (
        Backend,
        Execution,
        Runner,
        Treatment,
        call,
        differing,
        framed,
        is_unwritten,
        make_outputs,
    )
    from ladder.backends.choice import NAMES, get_backend, gpu_is_there
    from ladder.backends.cuda import CudaBackend
    from ladder.backends.emulated import EmulatorBackend, EmulatorRunner
    from ladder.backends.timing import Timing

_NAMES = {
    "Arena": "arena",
    "Backend": "base",
    "CudaBackend": "cuda",
    "EmulatorBackend": "emulated",
    "EmulatorRunner": "emulated",
    "Runner": "base",
    "Treatment": "base",
    "Execution": "base",
    "NAMES": "choice",
    "Timing": "timing",
    "call": "base",
    "differing": "base",
    "framed": "base",
    "get_backend": "choice",
    "gpu_is_there": "choice",
    "is_unwritten": "base",
    "make_outputs": "base",
}

__getattr__ = door(__name__, _NAMES)
