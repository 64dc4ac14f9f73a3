"""Gives this process's torch the device "cuda:0", the emulated GPU."""

from __future__ import annotations

import ctypes
import os
import re
import sys

from ladder.call.torch.device_library import (
    HEADERS,
    cuda_home,
    device_library,
    torch_directory,
    torch_version,
)
from ladder.common import cache
from ladder.errors import UnsupportedProblem

_active = False


def activate() -> None:
    """Makes ``torch.cuda`` available, and ``torch.utils.cpp_extension`` build for the emulator.

    It lasts as long as the process. Call it before torch is imported: torch looks for its devices once.

    Raises :class:`UnsupportedProblem` if torch has been imported or is a CUDA build, and :class:`BuildError`
    if the device does not compile for this torch.
    """
    global _active
    if _active:
        return
    if "torch" in sys.modules:
        raise UnsupportedProblem(
            "torch is already imported, so it cannot be given another device",
            "Call ladder.torch.activate() before the first import of torch, or run: ladder torch script.py",
        )
    version = (torch_directory() / "version.py").read_text(encoding="utf-8")
    if re.search(r"^(cuda|hip)\b.*=\s*['\"]", version, re.MULTILINE):
        raise UnsupportedProblem(
            f"torch {torch_version()} is a build for GPUs, which has a device cuda of its own",
            "Install torch's CPU build in an environment of its own: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu",
        )
    library = device_library()
    set_variables()
    ctypes.CDLL(str(library))
    from ladder.call.torch import interface

    interface.install(library)
    _active = True


def set_variables() -> None:
    """Sets what ``torch.utils.cpp_extension`` and other build systems read from the environment."""
    home = cuda_home()
    os.environ["CUDA_HOME"] = os.environ["CUDA_PATH"] = str(home)
    os.environ["PATH"] = os.pathsep.join([str(home / "bin"), os.environ.get("PATH", "")])
    # The compiler of the toolkit replaces the architectures; this only keeps torch from guessing.
    os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0"
    # Builds for the emulator must not meet those for a GPU.
    extensions = (
        cache.root()
        / "torch-extensions"
        / cache.digest([str(home), str(torch_directory()), torch_version(), str(HEADERS)])
    )
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(extensions))
