"""Builds the native part of the emulated device for the installed torch; the headers for extensions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ladder.common import cache, processes
from ladder.common.progress import steps
from ladder.compile import emulated_toolkit, emulator_library, gxx, gxx_flags, gxx_version
from ladder.errors import BuildError, ToolchainError

_HERE = Path(__file__).parent
#: In place of torch's headers for CUDA.
HEADERS = _HERE / "include"
_SOURCES = tuple(sorted((_HERE / "native").glob("*.cpp")))
#: Libraries of torch's CUDA build; what extensions use of them is in HEADERS.
_TORCH_LIBRARIES = ("c10_cuda", "torch_cuda", "torch_cuda_linalg")
#: From this release on, torch's headers are C++20.
_NEEDS_CXX20 = (2, 10)


def cuda_home() -> Path:
    """The toolkit for extensions; see :func:`ladder.compile.emulated_toolkit`."""
    return emulated_toolkit(_TORCH_LIBRARIES)


def device_library() -> Path:
    """Returns the library that gives torch the emulated device, building it first if necessary (once for each
    version of torch).

    Raises :class:`BuildError` with the compiler's message, for example for an untried version of torch.
    """
    headers = sorted((_HERE / "native").glob("*.h"))
    parts = [path.read_bytes() for path in (*_SOURCES, *headers)]
    digest = cache.digest(
        [torch_version(), str(torch_directory()), gxx_version(), str(emulator_library().directory), *parts]
    )
    return cache.made_once(cache.root() / f"torch-device-{digest}", _build) / "libladder_torch.so"


def _build(directory: Path) -> None:
    with steps("Building", len(_SOURCES) + 1) as progress:
        objects = []
        for source in _SOURCES:
            with progress.step(f"the device of torch, {source.name}"):
                objects.append(f"{source.stem}.o")
                _run([*compile_command(), "-O2", "-c", str(source), "-o", objects[-1]], directory)
        with progress.step("the device of torch"):
            library = emulator_library()
            found_in = [torch_directory() / "lib", library.directory]
            places = [word for path in found_in for word in (f"-L{path}", f"-Wl,-rpath,{path}")]
            inputs = [
                *objects,
                str(library.entry_points),
                *places,
                "-lladder_emulator",
                "-ltorch_cpu",
                "-lc10",
            ]
            _run([gxx(), *gxx_flags(), "-shared", *inputs, "-o", "libladder_torch.so"], directory)


def torch_directory() -> Path:
    """The installed torch, which is not imported. Raises :class:`ToolchainError` if there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise ToolchainError(
            "torch is not installed", "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    return Path(found.origin).parent


def torch_version() -> str:
    return importlib.metadata.version("torch")


def compile_command() -> list[str]:
    """The compiler with the flags and directories that torch's headers need."""
    release = re.match(r"(\d+)\.(\d+)", torch_version())
    is_new = release is not None and (int(release[1]), int(release[2])) >= _NEEDS_CXX20
    standard = "-std=c++20" if is_new else "-std=c++17"
    own = ["-I", str(HEADERS)]
    torch_headers = torch_directory() / "include"
    system = [torch_headers, torch_headers / "torch" / "csrc" / "api" / "include", cuda_home() / "include"]
    included = [word for path in system for word in ("-isystem", str(path))]
    return [gxx(), *gxx_flags(), standard, "-fPIC", *own, *included]


def _run(command: Sequence[str], directory: Path) -> None:
    done = processes.run(command, directory)
    if done.returncode:
        raise BuildError(
            f"the emulated device for torch does not compile:\n{done.stderr[-3000:]}",
            f"It is tried with torch 2.13. The command: {shlex.join(command)}",
        )
