"""Locates the emulator's libraries for linking."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from ladder.errors import ToolchainError

#: Libraries of a toolkit that the emulator's entry points replace.
REPLACED_LIBRARIES = (
    *("cuda", "cudart", "cudart_static", "cudadevrt", "nvToolsExt"),
    *("cublas", "cublas_static", "cublasLt", "cublasLt_static", "culibos"),
    *("curand", "curand_static", "cufft", "cufft_static"),
)


@dataclass(frozen=True)
class EmulatorLibrary:
    """The libraries beside the module ``ladder._emulator``."""

    directory: Path

    @property
    def shared(self) -> Path:
        """The whole emulator, loaded once per process by the Python module and all emulator extensions."""
        return self.directory / "libladder_emulator.so"

    @property
    def headers(self) -> Path:
        """The headers of CUDA's libraries that the emulator has."""
        return self.directory / "include"

    @property
    def entry_points(self) -> Path:
        """The hidden functions of CUDA and of its libraries that forward to the shared library."""
        return self.directory / "libladder_cudart.a"


@functools.cache
def emulator_library() -> EmulatorLibrary:
    """Returns the installed libraries. Raises :class:`ToolchainError` if the package lacks them."""
    spec = importlib.util.find_spec("ladder._emulator")
    if spec is None or spec.origin is None:
        raise ToolchainError(
            "the emulator is not built", "In the repository: make compare    Elsewhere: pip install again"
        )
    library = EmulatorLibrary(Path(spec.origin).parent / "_lib")
    for path in (library.shared, library.entry_points, library.headers):
        if not path.exists():
            raise ToolchainError(
                f"{path} is missing", "In the repository: make compare    Elsewhere: pip install again"
            )
    return library
