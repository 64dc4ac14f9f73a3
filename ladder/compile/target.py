"""Build targets: the emulator, or this machine's GPU."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ladder.compile import toolchain, wheels
from ladder.compile.libraries import REPLACED_LIBRARIES, emulator_library
from ladder.compile.messages import refuse_undefined
from ladder.stages import OptionValue

# Without -fno-gnu-unique, two rungs would share the statics of inline functions, even if loaded privately.
_HOST_FLAGS = ["-fPIC", "-fno-gnu-unique"]


def host_compiler_flags() -> list[str]:
    """The flags that nvcc passes on to g++."""
    return [word for flag in (*_HOST_FLAGS, *toolchain.gxx_flags()) for word in ("-Xcompiler", flag)]


#: What rungs and programs are compiled as.
CXX_STANDARD = "-std=c++20"


def defines(options: Mapping[str, OptionValue]) -> list[str]:
    """The flags that give a rung its options."""
    return [f"-D{name}={int(v) if isinstance(v, bool) else v}" for name, v in options.items()]


@dataclass(frozen=True)
class Target(ABC):
    """A backend and the architecture ``arch`` of its GPU, such as ``sm_80``."""

    #: The backend's name.
    backend: ClassVar[str]
    #: Flags that name libraries whose place the link inputs take.
    replaced: ClassVar[frozenset[str]] = frozenset()
    #: Whether device code is added to objects of the host's part, see :mod:`ladder.compile.host_parts`.
    embeds: ClassVar[bool] = False

    arch: str

    @abstractmethod
    def nvcc(self) -> toolchain.Nvcc:
        """The compiler. Raises :class:`ToolchainError` if there is none."""

    def flags(self) -> list[str]:
        """The flags of every compilation for this target. Raises :class:`ToolchainError` without g++."""
        return ["-ccbin", toolchain.gxx(), *host_compiler_flags(), *self.own_flags()]

    def own_flags(self) -> list[str]:
        """Those of the flags that are the same on every machine."""
        return [CXX_STANDARD, "-O3", "-lineinfo", *self._code()]

    @abstractmethod
    def _code(self) -> Sequence[str]:
        """The flags that select the kind of device code."""

    @abstractmethod
    def linker(self) -> list[str]:
        """The beginning of the link command."""

    def link_inputs(self) -> list[str]:
        """The arguments that follow the objects in the link command."""
        return []

    def shared_flags(self) -> list[str]:
        """Additional flags for linking an extension."""
        return []

    def judged_flags(self) -> list[str]:
        """Additional flags for linking a program whose launch log is to say what main returned."""
        return []

    def linked(self) -> list[str | bytes]:
        """Names and contents that the output depends on besides sources, flags and compilers."""
        return []

    def check(self, binary: Path, name: str) -> None:
        """Raises :class:`BuildError` if the linked file is not usable on this target."""
        del binary, name

    def program_flags(self) -> list[str]:
        """Additional flags for compiling a program."""
        return []

    def kernel_flags(self, flags: Sequence[str]) -> list[str]:
        """Selects the ``flags`` for compiling a stage's kernel."""
        return list(flags)

    def machine_code(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        """Commands that add machine code to ``kernel.o`` if it is needed and missing; ``ptx`` is the PTX
        file.
        """
        del nvcc, flags, ptx
        return []

    def embedding(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        """Commands that replace the device code in ``kernel.o`` by the PTX file's, if the target embeds."""
        return [
            [str(nvcc.path), *flags, "-Xptxas", "-v", "-fatbin", str(ptx), "-o", "kernel.fatbin"],
            ["objcopy", "--update-section", ".nv_fatbin=kernel.fatbin", "kernel.o"],
        ]

    @property
    def _compute(self) -> str:
        return self.arch.replace("sm_", "compute_")


#: Shared-memory accesses that ptxas may merge or split; it leaves others, such as ldmatrix and cp.async,
#: alone.
_SHARED_ACCESS = re.compile(r"\b(?:ld|st|atom|red)\.(?:[\w:]+\.)*shared\b|\bwmma\.(?:load|store)\b")
#: What ptxas has remarks on.
_REMARKED = re.compile(r"\b(?:wgmma|setmaxnreg)\.")


@dataclass(frozen=True)
class EmulatorTarget(Target):
    """Embeds PTX as plain text, plus machine code to see how ptxas splits shared-memory accesses. Links the
    emulator instead of the CUDA runtime, and uses the pinned compiler.
    """

    backend = "emulator"
    embeds = True
    replaced = frozenset(f"-l{name}" for name in REPLACED_LIBRARIES)

    def nvcc(self) -> toolchain.Nvcc:
        return toolchain.pinned_nvcc()

    def _code(self) -> Sequence[str]:
        code = f"-gencode=arch={self._compute},code=[{self._compute},{self.arch}]"
        return [code, "-Xfatbin", "--compress=false", "-cudart", "none"]

    def kernel_flags(self, flags: Sequence[str]) -> list[str]:
        """Drops the machine code, which takes most of the compile time and is not always needed. The host's
        part, which only launches, is not optimised: that takes another sixth of the time.
        """
        ptx = f"-gencode=arch={self._compute},code={self._compute}"
        quick = {"-O3": "-O0"}  # of host code; kernels are always optimised
        return [ptx if flag.startswith("-gencode=") else quick.get(flag, flag) for flag in flags]

    def machine_code(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        """Compiles only the PTX, not the source again; the result replaces the fat binary."""
        text = ptx.read_text()
        if not _SHARED_ACCESS.search(text) and not _REMARKED.search(text):
            return []
        return self.embedding(nvcc, flags, ptx)

    def header_folders(self) -> list[Path]:
        """Of headers that programs include, besides the toolkit's."""
        return [folder for folder in (wheels.headers(), emulator_library().headers) if folder]

    def program_flags(self) -> list[str]:
        # Behind the program's own folders.
        found = [word for folder in self.header_folders() for word in ("-isystem", str(folder))]
        # CUB would use more of NVTX than the emulator's header has.
        return [*found, "-DCCCL_DISABLE_NVTX"]

    def linker(self) -> list[str]:
        return [toolchain.gxx(), *toolchain.gxx_flags()]

    def link_inputs(self) -> list[str]:
        library = emulator_library()
        directory = str(library.directory)
        return [str(library.entry_points), f"-L{directory}", "-lladder_emulator", f"-Wl,-rpath,{directory}"]

    def judged_flags(self) -> list[str]:
        return ["-Wl,--wrap=main"]

    def linked(self) -> list[str | bytes]:
        library = emulator_library()
        return [str(library.directory), library.entry_points.read_bytes()]

    def check(self, binary: Path, name: str) -> None:
        refuse_undefined(binary, name)


@dataclass(frozen=True)
class TimingTarget(EmulatorTarget):
    """The emulator's, always with machine code: the model of time replays ptxas's order of instructions."""

    backend = "timing"

    def machine_code(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        return self.embedding(nvcc, flags, ptx)


@dataclass(frozen=True)
class DebugTarget(EmulatorTarget):
    """Unoptimised kernels with the names of variables, or with ``lines_only`` the usual PTX; for a debugger.

    A program becomes a library, whose main the debugger calls.
    """

    backend = "debug"
    embeds = False

    lines_only: bool = False

    def own_flags(self) -> list[str]:
        if self.lines_only:
            return super().own_flags()
        return [CXX_STANDARD, "-G", "-Xcompiler=-O1", *self._code()]

    def _code(self) -> Sequence[str]:
        code = f"-gencode=arch={self._compute},code={self._compute}"
        return [code, "-Xfatbin", "--compress=false", "-cudart", "none"]

    def machine_code(self, nvcc: toolchain.Nvcc, flags: Sequence[str], ptx: Path) -> list[list[str]]:
        """None: counts of machine code would be those of unoptimised code."""
        return []

    def linker(self) -> list[str]:
        return [*super().linker(), "-shared"]


@dataclass(frozen=True)
class CudaTarget(Target):
    """Machine code for this machine's GPU, made by the system's compiler, if any, which fits the driver."""

    backend = "cuda"

    def nvcc(self) -> toolchain.Nvcc:
        return toolchain.system_nvcc() or toolchain.pinned_nvcc()

    def _code(self) -> Sequence[str]:
        # -arch=native does not enable architecture-specific features.
        only = self.arch.endswith("a")
        return [f"-gencode=arch={self._compute},code={self.arch}" if only else "-arch=native"]

    def linker(self) -> list[str]:
        nvcc = [str(self.nvcc().path), "-ccbin", toolchain.gxx(), "-cudart", "static"]
        return [*nvcc, *host_compiler_flags()]

    def shared_flags(self) -> list[str]:
        # Hide the runtime's symbols: torch may have loaded another version of it.
        return ["-Xlinker", "--exclude-libs,ALL"]
