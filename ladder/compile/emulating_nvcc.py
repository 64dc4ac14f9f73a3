"""An nvcc for build systems that were written for a GPU: it replaces what their flags say of architectures
and of the runtime by what the emulator needs. It is run as a program, before nvcc itself:

    python emulating_nvcc.py NVCC LIBRARIES EMULATOR -c kernel.cu -o kernel.o -arch=sm_90

NVCC is the compiler's path, LIBRARIES the folder of the toolkit's libraries, EMULATOR that of the emulator's.
``LADDER_ARCH`` names the virtual GPU (sm_80).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

#: Flags with a value, in the next word or behind ``=``, that the emulator's own replace.
_REPLACED = (
    *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"),
    *("-cudart", "--cudart"),
)
#: Flags that ask for the linking of device code alone.
_DEVICE_LINKING = ("-dlink", "--device-link")
#: Flags that compile device code which is linked later.
_RELOCATABLE = ("-dc", "--device-c", "-rdc=true", "--relocatable-device-code=true")
#: Those whose value may be the next word.
_WITH_A_VALUE = ("-rdc", "--relocatable-device-code")
#: Flags of what is not emulated: device code that is optimised when it is linked, which changes no result.
_DROPPED = ("-lineinfo", "--generate-line-info", "-dlto", "--dlink-time-opt")
_SOURCES = (".cu", ".c", ".cc", ".cpp", ".cxx")
#: Flags with which nvcc stops before it links.
_UNLINKED = frozenset(
    word
    for name in ("compile", "ptx", "cubin", "fatbin", "lib", "optix-ir", "cuda")
    for word in (f"-{name}", f"--{name}")
) | {"-c", "-dc", "--device-c", "-E", "--preprocess", "-M", "-MM", "--generate-dependencies"}
#: Flags with which nvcc compiles nothing.
_QUESTIONS = ("--version", "-V", "--help", "-h", "--list-gpu-arch", "--list-gpu-code")


def emulated(arguments: Sequence[str], arch: str) -> list[str]:
    """The arguments with which nvcc builds for the emulator. Raises ValueError for what is not emulated."""
    if not arguments or any(word in _QUESTIONS for word in arguments):
        return list(arguments)
    joined = [f"{one}={two}" for one, two in pairwise(arguments) if one in _WITH_A_VALUE]
    relocatable = [word for word in (*arguments, *joined) if word in _RELOCATABLE]
    if relocatable and not _stops_early(arguments) and any(word.endswith(_SOURCES) for word in arguments):
        raise ValueError(
            f"{relocatable[0]} is emulated if files are compiled and linked by separate commands: "
            "compile each with -dc, then link the objects."
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
        elif word not in _DROPPED:
            yield word


def linked(arguments: Sequence[str], libraries: str, emulator: str) -> list[str]:
    """What nvcc links instead of the runtime; nothing if it does not link."""
    if not arguments or _stops_early(arguments):
        return []
    return [f"-L{libraries}", "-lcudart", "-Xlinker", f"-rpath={emulator}"]


def searched(arguments: Sequence[str], libraries: str) -> list[str]:
    """The toolkit's headers, which nvcc also finds without being told: they have cuBLAS's and others beside
    those of the compiler's own folder.
    """
    if not arguments or any(word in _QUESTIONS for word in arguments):
        return []
    return ["-isystem", str(Path(libraries).with_name("include"))]


def _stops_early(arguments: Sequence[str]) -> bool:
    return any(word in _UNLINKED or word in _QUESTIONS for word in arguments)


def objects_of(arguments: Sequence[str]) -> list[str]:
    """The objects whose device code a command links; none if it links nothing. Raises ValueError for
    libraries of device code.
    """
    if _stops_early(arguments):
        return []
    if any(word in _DEVICE_LINKING for word in arguments):
        libraries = [word for word in arguments if word.endswith(".a") or word.startswith("-l")]
        if unknown := [word for word in libraries if word != "-lcudadevrt"]:
            raise ValueError(f"-dlink with {unknown[0]}: libraries of device code are not emulated.")
    output = _output(arguments)
    return [word for word in arguments if word.endswith(".o") and word != output]


def _output(arguments: Sequence[str]) -> str:
    return dict(pairwise(arguments)).get("-o", "a_dlink.o")


def _device_objects(objects: Sequence[str], nvcc: str, arch: str, directory: Path) -> list[str]:
    """Links the device code of the objects into one that completes them; none if they need none."""
    sys.path.insert(0, str(Path(__file__).parents[2]))  # this interpreter runs without site-packages
    from ladder.compile.device_linking import link_device_code
    from ladder.compile.target import EmulatorTarget
    from ladder.compile.toolchain import Nvcc
    from ladder.errors import LadderError

    target, compiler = EmulatorTarget(arch), Nvcc(Path(nvcc), pinned=True)
    try:
        return link_device_code(objects, Path(objects[0]).name, directory, target, compiler)
    except LadderError as error:
        raise ValueError(str(error)) from None


def _link(nvcc: str, arch: str, arguments: Sequence[str], words: Sequence[str]) -> int:
    """Links device code, and unless it is asked for that alone the program, with nvcc's ``words``."""
    with tempfile.TemporaryDirectory() as folder:
        made = _device_objects(objects_of(arguments), nvcc, arch, Path(folder))
        if not any(word in _DEVICE_LINKING for word in arguments):
            return subprocess.run([nvcc, *words, *made, "-nodlink"]).returncode
        if not made:
            empty = [nvcc, "-x", "c++", "-c", os.devnull, "-o", _output(arguments)]
            return subprocess.run(empty).returncode
        shutil.copyfile(made[0], _output(arguments))
        return 0


def main() -> None:
    """Replaces this process by nvcc, or links device code, which nvcc can only do with machine code."""
    nvcc, libraries, emulator, *arguments = sys.argv[1:]
    arch = os.environ.get("LADDER_ARCH") or "sm_80"
    try:
        words = emulated(arguments, arch)
        words += [*searched(arguments, libraries), *linked(arguments, libraries, emulator)]
        if objects_of(arguments):
            sys.exit(_link(nvcc, arch, arguments, words))
    except ValueError as error:
        sys.exit(f"ladder: nvcc {error}")
    os.execv(nvcc, [nvcc, *words])


if __name__ == "__main__":
    main()
