"""A directory laid out as a CUDA toolkit whose compiler and libraries are the emulator's.

Build systems that are given it as ``CUDA_HOME`` build for the emulator unchanged: its nvcc is the pinned one
with the emulator's flags (:mod:`ladder.compile.emulating_nvcc`), and ``-lcudart`` and ``-lcuda`` link the
emulator.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ladder.common import cache
from ladder.compile import emulating_nvcc, toolchain
from ladder.compile.libraries import REPLACED_LIBRARIES, emulator_library


def emulated_toolkit(empty_libraries: Sequence[str] = ()) -> Path:
    """Returns the toolkit's directory, making it first if necessary.

    ``empty_libraries`` are names that build systems link and that need nothing but the emulator.

    Raises :class:`ToolchainError` without compilers, :class:`CacheError` if the cache cannot be written.
    """
    nvcc, library = toolchain.pinned_nvcc(), emulator_library()
    names = (*REPLACED_LIBRARIES, *empty_libraries)
    compiler = Path(emulating_nvcc.__file__)
    digest = cache.digest(
        [
            *(str(nvcc.path), nvcc.version, str(library.directory), sys.executable, str(compiler)),
            *(compiler.read_text(), *names),
        ]
    )
    final = cache.root() / f"toolkit-{digest}"
    return cache.made_once(final, lambda directory: _fill(directory, final, nvcc, names))


def _fill(directory: Path, final: Path, nvcc: toolchain.Nvcc, libraries: Sequence[str]) -> None:
    """Fills ``directory``, which will be ``final``."""
    library = emulator_library()
    (directory / "bin").mkdir()
    places = [nvcc.path, final / "lib64", library.directory]
    words = [sys.executable, "-S", "-E", emulating_nvcc.__file__, *map(str, places)]
    program = directory / "bin" / "nvcc"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    (directory / "lib64").mkdir()
    # A linker script: the hidden cuda* functions, and the library that they call.
    script = f'INPUT("{library.entry_points}" "{library.shared}")\n'
    for name in libraries:
        suffix = "a" if name.endswith("_static") or name == "cudadevrt" else "so"
        (directory / "lib64" / f"lib{name}.{suffix}").write_text(script)
    (directory / "lib").symlink_to("lib64")
    (directory / "include").mkdir()
    for header in (*nvcc.include.iterdir(), *library.headers.iterdir()):
        (directory / "include" / header.name).symlink_to(header)
    for name in ("nvvm", "version.json"):
        if (nvcc.home / name).exists():
            os.symlink(nvcc.home / name, directory / name)
