"""Compilers' runs, and the cache of what they make.

The name of a build directory holds a hash of everything it was made from: sources and their paths (which line
information contains), flags, compilers and linked libraries. So a build is never overwritten and never stale.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ladder.common import cache, files, processes
from ladder.compile import housekeeping, toolchain
from ladder.compile.confining import CompilerStopped, compile_as_told
from ladder.compile.messages import failure
from ladder.compile.plain_names import plain, refuse_comma
from ladder.compile.snapshot import Snapshot
from ladder.compile.target import Target
from ladder.errors import BuildError

_ATTEMPTS = 3
#: The include guard of C++17's special mathematical functions. libstdc++'s <cmath> reads them with all that
#: they are made of, a third of what the compilers read before a kernel. Other libraries do not know it.
WITHOUT_SPECIAL_FUNCTIONS = "-D_GLIBCXX_BITS_SPECFUN_H"
#: Environment variables that nvcc, g++ and the linker read; those of the second line through nvcc.profile.
_HEEDED = (
    *("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDA_HOME", "CUDA_PATH"),
    *("INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CUDAFE_FLAGS", "PTXAS_FLAGS", "NVVM_FLAGS", "OCG_FLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH"),
    *("LD_RUN_PATH", "SOURCE_DATE_EPOCH"),
)


def place_of(name: str, target: Target) -> Path:
    """The path of a stage's or program's build directories, less the digests that they end in. A benchmark's
    stages have their options in the name, with commas.
    """
    builds = plain(housekeeping.builds())
    refuse_comma(str(builds.resolve()), "Set XDG_CACHE_HOME to a folder without one.")
    return builds / f"{name.replace(',', '-')}-{target.backend}-{target.arch}"


def is_there(result: Path) -> bool:
    """Whether the file exists and matches its seal; if so, marks the build as used."""
    try:
        whole = _seal_of(result).read_text() == cache.digest([result.read_bytes()])
    except OSError:
        return False
    if whole:
        housekeeping.mark_used(result.parent)
    return whole


def _seal_of(result: Path) -> Path:
    return result.with_name(f"{result.name}.sha256")


def finish(directory: Path, final: Path, name: str) -> Path:
    """Seals the built file ``name`` and moves its directory to ``final``, replacing an incomplete one."""
    _seal_of(directory / name).write_text(cache.digest([(directory / name).read_bytes()]))
    if final.exists() and not is_there(final / name):
        shutil.rmtree(final)
    cache.finish(directory, final)
    return final / name


def source_files(*directories: Path) -> list[Path]:
    return [
        path
        for directory in directories
        for path in files.walk(directory)
        if path.suffix in files.SOURCE_SUFFIXES
    ]


class _Moved(Exception):
    """Files changed while a compiler read them, so its output cannot be attributed to any version of them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self.paths = paths


def until_settled(name: str, make: Callable[[], Path]) -> Path:
    """Retries a build whose files changed meanwhile. Raises :class:`BuildError` after too many attempts."""
    for _ in range(_ATTEMPTS):
        try:
            return make()
        except _Moved as moved:
            paths = moved.paths
    raise BuildError(
        f"{name}: {', '.join(map(str, paths))} was written each of the {_ATTEMPTS} times it was compiled",
        "Build again when it is not being written any more.",
    )


def refuse_moved(before: Snapshot, files: Iterable[Path]) -> Snapshot:
    """Snapshots the files again; raises :class:`_Moved` if any has changed."""
    after = Snapshot.of(files)
    if changed := before.changed(after):
        raise _Moved(changed)
    return after


def compile_source(
    command: Sequence[str],
    directory: Path,
    name: str,
    rule: Path,
    nvcc: toolchain.Nvcc,
    more: Sequence[str] = (),
) -> list[Path]:
    """Runs the compiler with ``more`` flags; returns the files that it reports as read.

    A source that does not compile without the special functions, or without what they include, gets them.
    """
    listing = ("-MD", "-MT", "object", "-MF", str(rule), *more)
    try:
        compile_with(command, directory, name, "", (*listing, WITHOUT_SPECIAL_FUNCTIONS), rule.parent)
    except CompilerStopped:
        raise
    except BuildError:
        compile_with(command, directory, name, "does not compile", listing, rule.parent)
    return dependencies_of(os.fsdecode(rule.read_bytes()), directory, nvcc)


def read_paths(listing: Path) -> list[Path]:
    text = os.fsdecode(listing.read_bytes()) if listing.exists() else ""
    return [Path(line) for line in text.splitlines()]


def dependencies_of(rule: str, directory: Path, nvcc: toolchain.Nvcc) -> list[Path]:
    """Parses the files out of a compiler's make rule, except those in folders of the toolkit and the system.
    Symbolic links are not resolved, since their targets may change.
    """
    escaped = re.findall(r"(?:\\[ #]|\S)+", rule.replace("\\\n", " ").partition(":")[2])
    words = [re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in escaped]
    outside = (nvcc.home, Path("/usr/include"), Path("/usr/lib"))

    @functools.cache
    def is_outside(folder: str) -> bool:
        resolved = Path(folder).resolve()
        return any(resolved.is_relative_to(place) for place in outside)

    paths = (os.path.join(directory, word) for word in words)
    return [Path(path) for path in paths if not is_outside(os.path.dirname(path))]


def key_of(
    target: Target, nvcc: toolchain.Nvcc, flags: Iterable[str], sources: Snapshot | None = None
) -> str:
    parts = [target.backend, target.arch, *compilers(nvcc), *flags, *target.linked()]
    return cache.digest([*parts, *(sources.parts() if sources else ())])


def ingredients(target: Target) -> list[str | bytes]:
    """What every build for the target depends on besides sources and flags."""
    return [target.backend, target.arch, *compilers(target.nvcc()), *target.linked()]


def compilers(nvcc: toolchain.Nvcc) -> list[str]:
    """What the compilers' output depends on besides sources and flags."""
    return [str(nvcc.path), nvcc.version, toolchain.gxx_version(), *environment()]


def environment() -> list[str]:
    """The environment's variables that compilers heed, with their values."""
    return [f"{name}={os.environ[name]}" for name in _HEEDED if name in os.environ]


def run(
    command: Sequence[str],
    directory: Path,
    name: str,
    otherwise: str,
    more: Sequence[str] = (),
) -> str:
    """Runs a linker, or a compiler of sources of this project, and returns its messages; raises
    :class:`BuildError` if it fails. ``more`` flags are not part of the command that the error shows.
    """
    return _messages(processes.run([*command, *more], directory, directory), name, otherwise, command)


def compile_with(
    command: Sequence[str],
    directory: Path,
    name: str,
    otherwise: str,
    more: Sequence[str] = (),
    scratch: Path | None = None,
) -> str:
    """As :func:`run`, for a compiler of other sources, which may be confined; ``scratch`` is for temporary
    files.
    """
    result = compile_as_told([*command, *more], directory, scratch or directory)
    return _messages(result, name, otherwise, command)


def _messages(
    result: subprocess.CompletedProcess[str], name: str, otherwise: str, command: Sequence[str]
) -> str:
    if result.returncode == 0:
        return result.stderr
    message = result.stderr + result.stdout
    if "No space left on device" in message:
        raise OSError(28, "No space left on device")
    raise failure(name, otherwise, message, command)
