"""Where a stage runs: on the emulator or on this machine's GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.backends.arena import Arena
    from ladder.backends.base import (
        Backend,
        Execution,
        LaunchFunction,
        Loaded,
        Runner,
        Treatment,
        call,
        differing,
        framed,
        is_unwritten,
        make_outputs,
    )
    from ladder.backends.choice import NAMES, get_backend, gpu_is_there
    from ladder.backends.cuda import CudaBackend, CudaLaunch
    from ladder.backends.emulated import EmulatorBackend, EmulatorRunner
    from ladder.backends.emulation import Lent, emulate
    from ladder.backends.timing import Timing

__getattr__ = door(__name__)
