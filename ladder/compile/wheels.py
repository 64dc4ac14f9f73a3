"""Parts of CUDA that run without a GPU and come as wheels of their own: NVRTC, and cuRAND's device functions.

They are taken from wherever Python would import them (``nvidia/cu13/`` beside other packages).
"""

from __future__ import annotations

import sys
from pathlib import Path

from ladder.common import cache
from ladder.errors import ToolchainError

#: The headers of these wheels. A folder with all headers of a toolkit would hide the compiler's own.
_HEADERS = ("nvrtc.h", "curand*.h")
#: The flag that links NVRTC.
NVRTC = "-lnvrtc"
#: Functions of NVRTC that the emulator's replace: it runs PTX, and no machine code.
_REPLACED = ("nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN")


def _folders(name: str) -> list[Path]:
    return [path for place in sys.path if place for path in sorted(Path(place).glob(f"nvidia/*/{name}"))]


def headers() -> Path | None:
    """A folder with the headers that are installed; None if there are none."""
    found = {
        header.name: header.resolve()
        for folder in reversed(_folders("include"))
        for pattern in _HEADERS
        for header in folder.glob(pattern)
    }
    if not found:
        return None

    def fill(directory: Path) -> None:
        for name, header in found.items():
            (directory / name).symlink_to(header)

    digest = cache.digest([str(path) for path in sorted(found.values())])
    return cache.made_once(cache.root() / f"headers-{digest}", fill)


def nvrtc_flags() -> list[str]:
    """The linker's flags in place of ``-lnvrtc``. Raises :class:`ToolchainError` if it is not installed."""
    libraries = [path for folder in _folders("lib") for path in sorted(folder.glob("libnvrtc.so.[0-9]*"))]
    if not libraries:
        raise ToolchainError(
            "NVRTC, which compiles kernels while a program runs, is not installed",
            "pip install flash-ladder[nvrtc]; it needs no GPU.",
        )
    # It loads its builtins by name, for which the linker's older kind of path serves.
    place = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{libraries[0].parent}"]
    return [str(libraries[0]), *place, *(f"-Wl,--wrap={name}" for name in _REPLACED)]
