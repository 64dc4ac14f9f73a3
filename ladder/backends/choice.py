"""Finding a backend by its name."""

from __future__ import annotations

import ctypes

from ladder.backends.base import Backend
from ladder.emulator import variables
from ladder.errors import LadderError

NAMES = ("auto", "emulator", "cuda")


def gpu_is_there() -> bool:
    """Whether torch can use a CUDA GPU. Without a driver it cannot, and torch is not even loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    import torch

    return torch.cuda.is_available()


def get_backend(name: str = "auto") -> Backend:
    """The backend of that name; ``auto`` is the GPU when there is one. Raises :class:`LadderError`."""
    if name == "auto":
        name = "cuda" if gpu_is_there() else "emulator"
    if name == "emulator":
        variables.validate()
        from ladder.backends.emulated import EmulatorBackend

        return EmulatorBackend()
    if name == "cuda":
        if not gpu_is_there():
            raise LadderError(
                "torch sees no CUDA GPU", "--backend emulator needs none; ladder doctor says what torch sees."
            )
        from ladder.backends.cuda import CudaBackend

        return CudaBackend()
    raise LadderError(f"backend {name!r} is none of {', '.join(NAMES)}")
