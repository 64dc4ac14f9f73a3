"""The compilers: the pinned nvcc of the emulator backend, the system's nvcc for a GPU, and g++.

The pinned compiler is installed from wheels into a prefix in the user's cache, not into torch's environment,
where it would clash with torch's CUDA packages. Pinning gives the same PTX, and so the same counts, on every
machine. ``python -m ladder.compile.toolchain`` fetches it and prints its include directory, using only the
standard library.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ladder.common import cache, processes
from ladder.errors import ToolchainError

VERSION = "13.0"
REQUIREMENT = f"cuda-toolkit[nvcc,nvvm,crt,cudart,cccl,profiler]=={VERSION}.*"
DOWNLOAD_MEGABYTES = 105
#: Compiler launchers that may precede the compiler in ``$CXX``.
_LAUNCHERS = ("ccache", "distcc", "sccache")


@dataclass(frozen=True)
class Nvcc:
    """An nvcc and its toolkit."""

    path: Path
    pinned: bool

    @property
    def home(self) -> Path:
        """The toolkit's root, which contains ``bin/nvcc``."""
        return self.path.resolve().parent.parent

    @property
    def include(self) -> Path:
        return self.home / "include"

    @property
    def libraries(self) -> Path:
        return next((p for p in (self.home / "lib64", self.home / "lib") if p.is_dir()), self.home / "lib")

    @property
    def version(self) -> str:
        """The version, such as ``13.0.88``."""
        return _nvcc_version(self.path)


@functools.cache
def _nvcc_version(path: Path) -> str:
    text = _output([str(path), "--version"])
    releases = re.findall(r"\bV(\d+\.[\w.]+)", text)
    if not releases:
        raise ToolchainError(
            f"{path} is no nvcc: its --version names no release",
            "LADDER_NVCC, CUDA_HOME and PATH say which one is taken; ladder doctor lists what is there.",
        )
    return str(releases[-1])


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", errors="replace")
        return done.stdout
    except FileNotFoundError as error:
        raise ToolchainError(f"{command[0]} is not there", "ladder doctor lists what is missing.") from error
    except OSError as error:
        raise ToolchainError(
            f"{command[0]} cannot be run: {error.strerror}", "ladder doctor lists what is missing."
        ) from error
    except subprocess.CalledProcessError as error:
        tail = (error.stderr or error.stdout or "").strip()[-500:]
        raise ToolchainError(
            f"{' '.join(command)} failed: {tail}", "ladder doctor lists what is missing."
        ) from error


def prefix() -> Path:
    """The directory of the pinned compiler, fetched or not; its name depends on the packages' versions."""
    return cache.root() / f"cuda-{VERSION}-{cache.digest([REQUIREMENT])[:6]}"


def installed_nvcc() -> Nvcc | None:
    """Returns the pinned compiler if it has been fetched, or the one that ``LADDER_NVCC`` names."""
    override = os.environ.get("LADDER_NVCC")
    if override:
        if not (Path(override).is_file() and os.access(override, os.X_OK)):
            raise ToolchainError(
                f"LADDER_NVCC names {override}, which cannot be run", "Unset it to use the pinned nvcc."
            )
        return Nvcc(Path(override).absolute(), pinned=False)
    path = prefix() / "nvidia" / "cu13" / "bin" / "nvcc"
    return Nvcc(path, pinned=True) if path.exists() else None


def pinned_nvcc() -> Nvcc:
    """Returns the pinned compiler, fetching it first if it is missing (about 105 MB)."""
    found = installed_nvcc()
    if found is None:
        _fetch()
        found = installed_nvcc()
    if found is None:
        raise ToolchainError(
            f"the wheels of {REQUIREMENT} hold no nvcc for {sysconfig.get_platform()}",
            "The compiler exists for x86-64 and aarch64 Linux; elsewhere use a container or WSL2.",
        )
    return found


@processes.ended_by_signals()
def _fetch() -> None:
    final = prefix()

    def fill(directory: Path) -> None:
        print(
            f"Fetching the CUDA {VERSION} compiler into {final} (about {DOWNLOAD_MEGABYTES} MB, once) ...",
            file=sys.stderr,
            flush=True,
        )
        _pip_install(directory)
        # Add the links that a system toolkit has, too: ld looks for them.
        libraries = directory / "nvidia" / "cu13" / "lib"
        for library in libraries.glob("libcudart.so.*"):
            (libraries / "libcudart.so").symlink_to(library.name)

    cache.made_once(final, fill)


def _pip_install(target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    # On a terminal pip has a bar for each package; elsewhere it would only name them.
    command += [] if sys.stderr.isatty() else ["--quiet"]
    command += ["--target", str(target), REQUIREMENT]
    result = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if result.returncode == 0:
        return
    message = result.stderr.strip()
    if "No module named pip" in message:
        raise ToolchainError(
            f"{sys.executable} has no pip, which fetches the compiler",
            f"{sys.executable} -m ensurepip   (or make a virtual environment with pip)",
        )
    if "No space left" in message:
        raise ToolchainError(
            f"the disk is full: the compiler needs 300 MB in {target.parent}",
            "Free some space, or set XDG_CACHE_HOME to a directory on a larger disk.",
        )
    lines = [line for line in message.splitlines() if not line.startswith("WARNING")]
    raise ToolchainError(
        "the compiler could not be fetched:\n" + "\n".join(lines[-6:]),
        "To try again by hand: " + " ".join([*command[:-3], "--target", "/tmp/cuda", f"'{REQUIREMENT}'"]),
    )


def system_nvcc() -> Nvcc | None:
    """Finds the machine's own nvcc, which matches its driver: in CUDA_HOME, PATH or /usr/local/cuda."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    candidates = [Path(home) / "bin" / "nvcc" for home in homes if home]
    on_path = shutil.which("nvcc")
    candidates += [Path(on_path)] if on_path else []
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    return next(
        (Nvcc(path, pinned=False) for path in candidates if path.is_file() and os.access(path, os.X_OK)), None
    )


def gxx() -> str:
    """The host compiler: the program that ``$CXX`` names, else g++."""
    name = _cxx()[0]
    found = shutil.which(name)
    if found is None:
        raise ToolchainError(
            f"{name} is not there; to compile kernels nvcc needs a C++ compiler",
            "Debian, Ubuntu: apt-get install g++      Fedora: dnf install gcc-c++",
        )
    return found


def gxx_flags() -> list[str]:
    """The flags in ``$CXX``, as in ``g++ -m64``."""
    return _cxx()[1:]


def _cxx() -> list[str]:
    text = os.environ.get("CXX", "")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ToolchainError(f"CXX is {text!r}: {error}", "Mind its quotes, or unset it for g++.") from None
    if words and Path(words[0]).name in _LAUNCHERS:  # nvcc runs the compiler itself
        words = words[1:]
    return words or ["g++"]


def gxx_version() -> str:
    """The first line of ``g++ --version``."""
    return _gxx_version(gxx())


@functools.cache
def _gxx_version(path: str) -> str:
    lines = _output([path, "--version"]).splitlines()
    if not lines:
        raise ToolchainError(
            f"{path} is no C++ compiler: its --version says nothing", "Unset CXX to use g++."
        )
    return lines[0]


def main() -> int:
    """Fetches the pinned compiler if necessary and prints its include directory."""
    try:
        print(pinned_nvcc().include)
    except (ToolchainError, cache.CacheError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
