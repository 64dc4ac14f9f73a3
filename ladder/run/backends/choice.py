"""Finding a backend by its name."""

from __future__ import annotations

import ctypes

from ladder.errors import LadderError
from ladder.run.backends.base import Backend
from ladder.run.emulator import variables

NAMES = ("auto", "emulator", "cuda")


def gpu_is_there() -> bool:
    """Whether torch can use a CUDA GPU; without a driver, answers without importing torch."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    import torch

    return torch.cuda.is_available()


def get_backend(name: str = "auto") -> Backend:
    """Returns the named backend; ``auto`` prefers the GPU if there is one. Raises :class:`LadderError`."""
    if name == "auto":
        name = "cuda" if gpu_is_there() else "emulator"
    if name == "emulator":
        variables.validate()
        from ladder.run.backends.emulated import EmulatorBackend

        return EmulatorBackend()
    if name == "cuda":
        if not gpu_is_there():
            raise LadderError(
                "torch sees no CUDA GPU", "--backend emulator needs none; ladder doctor says what torch sees."
            )
        from ladder.run.backends.cuda import CudaBackend

        return CudaBackend()
    raise LadderError(f"backend {name!r} is none of {', '.join(NAMES)}")
