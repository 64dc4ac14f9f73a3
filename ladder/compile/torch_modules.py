"""Builds Python modules that use torch's C++ interface. Each fits one version of torch and of Python."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from ladder.common import cache, processes
from ladder.compile import housekeeping, toolchain
from ladder.compile.messages import failure
from ladder.compile.target import CXX_STANDARD


@processes.ended_by_signals()
def torch_module(source: Path) -> Path:
    """Returns the module that is named like its source, building it if necessary, which takes half a minute.

    Raises :class:`BuildError` with the compiler's message, for example without Python's headers, or
    :class:`ToolchainError` without a compiler.
    """
    command = _command()
    key = cache.digest([source.read_bytes(), *command, *_versions()])
    final = housekeeping.builds() / f"{source.stem}-{key}"
    library = f"{source.stem}.so"

    def fill(directory: Path) -> None:
        whole = [*command[:1], str(source), "-o", library, *command[1:]]
        result = processes.run(whole, directory, directory)
        if result.returncode != 0:
            raise failure(source.name, "does not compile", result.stderr, whole)

    made = cache.made_once(final, fill)
    housekeeping.mark_used(made)
    return made / library


def _command() -> list[str]:
    """The compiler with its flags."""
    import torch  # takes seconds, which other builds do not need

    home = Path(torch.__file__).parent
    includes = (home / "include", home / "include/torch/csrc/api/include", sysconfig.get_path("include"))
    return [
        *(toolchain.gxx(), *toolchain.gxx_flags(), CXX_STANDARD, "-O2", "-fPIC", "-shared", "-w"),
        *("-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
        *(word for folder in includes for word in ("-isystem", str(folder))),
        *(f"-L{home / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python"),
    ]


def _versions() -> list[str]:
    import torch

    return [torch.__version__, sys.version, toolchain.gxx_version()]
