"""What to build for: the emulator, or the GPU that is there."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ladder.build import toolchain
from ladder.build.libraries import emulator_library
from ladder.build.messages import refuse_undefined

# Keeps inline functions' statics of two rungs from becoming one object although each is loaded privately.
_HOST_FLAGS = ["-fPIC", "-fno-gnu-unique"]


def host_compiler_flags() -> list[str]:
    """What nvcc hands to g++."""
    return [word for flag in (*_HOST_FLAGS, *toolchain.gxx_flags()) for word in ("-Xcompiler", flag)]


@dataclass(frozen=True)
class Target(ABC):
    """A backend and ``arch``, its GPU, e.g. ``sm_80``."""

    #: The backend's name.
    backend: ClassVar[str]

    arch: str

    @abstractmethod
    def nvcc(self) -> toolchain.Nvcc:
        """The compiler. Raises :class:`ToolchainError` if there is none."""

    def flags(self) -> list[str]:
        """The compiler's flags."""
        common = ["-std=c++20", "-O3", "-lineinfo", "-ccbin", toolchain.gxx()]
        return [*common, *host_compiler_flags(), *self._code()]

    @abstractmethod
    def _code(self) -> Sequence[str]:
        """Flags that say what device code is made."""

    @abstractmethod
    def linker(self) -> list[str]:
        """How the link line begins."""

    def link_inputs(self) -> list[str]:
        """What comes after the objects on the link line."""
        return []

    def shared_flags(self) -> list[str]:
        """More flags for linking an extension."""
        return []

    def linked(self) -> list[str | bytes]:
        """What the output depends on besides sources, flags and compilers."""
        return []

    def check(self, binary: Path, name: str) -> None:
        """Raises :class:`BuildError` unless what was linked is sound."""
        del binary, name

    def kernel_flags(self, flags: Sequence[str]) -> list[str]:
        """The flags, of these, that compile a stage's kernel."""
        return list(flags)

    def machine_code(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        """Commands that add machine code to ``kernel.o`` if it is needed and not in there yet; ``ptx`` is
        the kernel's PTX."""
        del nvcc, flags, ptx
        return []

    @property
    def _compute(self) -> str:
        return self.arch.replace("sm_", "compute_")


#: Accesses to shared memory that ptxas may merge or divide. It leaves ldmatrix, cp.async and the like alone.
_SHARED_ACCESS = re.compile(r"\b(?:ld|st|atom|red)\.(?:[\w:]+\.)*shared\b|\bwmma\.(?:load|store)\b")


@dataclass(frozen=True)
class EmulatorTarget(Target):
    """PTX as plain text, the machine code that tells how ptxas divides its accesses to shared memory, and no
    CUDA runtime: the emulator brings its own. The compiler is pinned."""

    backend = "emulator"

    def nvcc(self) -> toolchain.Nvcc:
        return toolchain.pinned_nvcc()

    def _code(self) -> Sequence[str]:
        code = f"-gencode=arch={self._compute},code=[{self._compute},{self.arch}]"
        return [code, "-Xfatbin", "--compress=false", "-cudart", "none"]

    def kernel_flags(self, flags: Sequence[str]) -> list[str]:
        """Leaves out the machine code: most of the time of a compilation, and not always needed."""
        ptx = f"-gencode=arch={self._compute},code={self._compute}"
        return [ptx if flag.startswith("-gencode=") else flag for flag in flags]

    def machine_code(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        """Compiles the PTX alone, and not the source again; the result takes the place of the fat binary."""
        if not _SHARED_ACCESS.search(ptx.read_text()):
            return []
        return [
            [str(nvcc.path), *flags, "-fatbin", str(ptx), "-o", "kernel.fatbin"],
            ["objcopy", "--update-section", ".nv_fatbin=kernel.fatbin", "kernel.o"],
        ]

    def linker(self) -> list[str]:
        return [toolchain.gxx(), *toolchain.gxx_flags()]

    def link_inputs(self) -> list[str]:
        library = emulator_library()
        directory = str(library.directory)
        return [str(library.entry_points), f"-L{directory}", "-lladder_emulator", f"-Wl,-rpath,{directory}"]

    def linked(self) -> list[str | bytes]:
        library = emulator_library()
        return [str(library.directory), library.entry_points.read_bytes()]

    def check(self, binary: Path, name: str) -> None:
        refuse_undefined(binary, name)


@dataclass(frozen=True)
class CudaTarget(Target):
    """Machine code for the GPU that is there. The system's compiler, if there is one, fits the driver."""

    backend = "cuda"

    def nvcc(self) -> toolchain.Nvcc:
        return toolchain.system_nvcc() or toolchain.pinned_nvcc()

    def _code(self) -> Sequence[str]:
        # -arch=native leaves out architecture-specific features.
        only = self.arch.endswith("a")
        return [f"-gencode=arch={self._compute},code={self.arch}" if only else "-arch=native"]

    def linker(self) -> list[str]:
        nvcc = [str(self.nvcc().path), "-ccbin", toolchain.gxx(), "-cudart", "static"]
        return [*nvcc, *host_compiler_flags()]

    def shared_flags(self) -> list[str]:
        # The runtime's symbols are hidden: the one that torch has loaded may be of another version.
        return ["-Xlinker", "--exclude-libs,ALL"]
