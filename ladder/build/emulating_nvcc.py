"""An nvcc for build systems that were written for a GPU: it replaces what their flags say of architectures
and of the runtime by what the emulator needs. It is run as a program, before nvcc itself:

    python emulating_nvcc.py NVCC LIBRARIES EMULATOR -c kernel.cu -o kernel.o -arch=sm_90

NVCC is the compiler's path, LIBRARIES the folder of the toolkit's libraries, EMULATOR that of the emulator's.
``LADDER_ARCH`` names the virtual GPU (sm_80).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

#: Flags with a value, in the next word or behind ``=``, that the emulator's own replace.
_REPLACED = (
    *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"),
    *("-cudart", "--cudart"),
)
#: Flags that ask for the linking of device code.
_DEVICE_LINKING = (
    "-dc",
    "--device-c",
    "-dlink",
    "--device-link",
    "-rdc=true",
    "--relocatable-device-code=true",
)
#: Flags whose value may be the next word.
_RELOCATABLE = ("-rdc", "--relocatable-device-code")
#: Flags with which nvcc stops before it links.
_UNLINKED = frozenset(
    word
    for name in ("compile", "ptx", "cubin", "fatbin", "lib", "optix-ir", "cuda")
    for word in (f"-{name}", f"--{name}")
) | {"-c", "-E", "--preprocess", "-M", "-MM", "--generate-dependencies"}
#: Flags with which nvcc compiles nothing.
_QUESTIONS = ("--version", "-V", "--help", "-h", "--list-gpu-arch", "--list-gpu-code")


def emulated(arguments: Sequence[str], arch: str) -> list[str]:
    """The arguments with which nvcc builds for the emulator. Raises ValueError for what is not emulated."""
    if not arguments or any(word in _QUESTIONS for word in arguments):
        return list(arguments)
    joined = [f"{one}={two}" for one, two in pairwise(arguments) if one in _RELOCATABLE]
    if refused := [word for word in (*arguments, *joined) if word in _DEVICE_LINKING]:
        raise ValueError(
            f"{refused[0]} is not emulated: device code of several files cannot be linked. "
            "Compile all kernels and the device functions that they call in one file, without this flag."
        )
    compute = arch.replace("sm_", "compute_")
    # With machine code, which says how ptxas splits shared-memory accesses.
    own = [f"-gencode=arch={compute},code=[{compute},{arch}]", "-lineinfo", "-Xfatbin", "--compress=false"]
    # CUB would use more of NVTX than the emulator's header has.
    own += ["-cudart", "none", "-Xcompiler", "-fno-gnu-unique", "-DCCCL_DISABLE_NVTX"]
    return [*_kept(arguments), *own]


def _kept(arguments: Sequence[str]) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if name in _REPLACED:
            if not equals:
                next(words, None)
        elif word not in ("-lineinfo", "--generate-line-info"):
            yield word


def linked(arguments: Sequence[str], libraries: str, emulator: str) -> list[str]:
    """What nvcc links instead of the runtime; nothing if it does not link."""
    if not arguments or any(word in _UNLINKED or word in _QUESTIONS for word in arguments):
        return []
    return [f"-L{libraries}", "-lcudart", "-Xlinker", f"-rpath={emulator}"]


def main() -> None:
    """Replaces this process by nvcc."""
    nvcc, libraries, emulator, *arguments = sys.argv[1:]
    try:
        words = emulated(arguments, os.environ.get("LADDER_ARCH") or "sm_80")
    except ValueError as error:
        sys.exit(f"ladder: nvcc {error}")
    words += linked(arguments, libraries, emulator)
    os.execv(nvcc, [nvcc, *words])


if __name__ == "__main__":
    main()
