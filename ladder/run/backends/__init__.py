"""Where a stage runs: on the emulator or on this machine's GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.run.backends.arena import Arena
    from ladder.run.backends.base import (
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
    from ladder.run.backends.choice import NAMES, get_backend, gpu_is_there
    from ladder.run.backends.cuda import CudaBackend, CudaLaunch
    from ladder.run.backends.emulated import EmulatorBackend, EmulatorRunner, shared_minute
    from ladder.run.backends.emulation import Lent, emulate
    from ladder.run.backends.timing import Timing

__getattr__ = door(__name__)
