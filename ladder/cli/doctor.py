"""``ladder doctor``: reports what is installed and how to get what is missing.

``python3 -m ladder doctor`` works before anything is installed, so what it needs for that is in the standard
library.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder import stages
from ladder.common import cache, files
from ladder.compile import emulator_library, housekeeping, toolchain
from ladder.errors import LadderError, ProfilerError, ToolchainError

#: How serious a finding is: ``missing`` stops the ladder, ``absent`` does not.
OK, ABSENT, MISSING = "ok", "absent", "missing"
_NEEDED_BYTES = 1 << 30


@dataclass(frozen=True)
class Found:
    """The finding on one component."""

    what: str
    state: str
    detail: str
    remedy: str = ""


def examine() -> Iterator[Found]:
    """Yields one finding for each component that the ladder uses; never raises."""
    for what, check in _CHECKS:
        try:
            state, detail, remedy = check()
        except LadderError as error:
            state, detail, remedy = MISSING, error.message, error.hint
        except ImportError as error:
            state, detail, remedy = MISSING, f"{error.name} is not installed", "make install"
        yield Found(what, state, detail, remedy)


_Result = tuple[str, str, str]


def _machine() -> _Result:
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "aarch64"):
        return (
            MISSING,
            f"{system} on {machine}",
            "Linux on x86-64 or aarch64 is needed: a container, or WSL2 on Windows.",
        )
    return OK, f"{system} on {machine}, {os.cpu_count()} cores", ""


def _python() -> _Result:
    return OK, f"{platform.python_version()} ({sys.executable})", ""


def _python_headers() -> _Result:
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if header.exists():
        return OK, str(header.parent), ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    remedy = f"Debian, Ubuntu: apt-get install python{version}-dev      Fedora: dnf install python3-devel"
    return _unless_shipped(), "none; building the emulator needs them", remedy


def _unless_shipped() -> str:
    """How serious it is that kernels cannot be compiled: a wheel's own rungs come compiled."""
    return MISSING if stages.is_repository() else ABSENT


def _gxx() -> _Result:
    try:
        return OK, f"{toolchain.gxx()}: {toolchain.gxx_version()}", ""
    except ToolchainError as error:
        return _unless_shipped(), error.message, error.hint


def _program(name: str, package: str) -> _Result:
    found = shutil.which(name)
    if found is None:
        return _unless_shipped(), f"{name} is not on PATH", f"Debian, Ubuntu: apt-get install {package}"
    return OK, found, ""


def _pinned_compiler() -> _Result:
    nvcc = toolchain.installed_nvcc()
    if nvcc is None:
        size = toolchain.DOWNLOAD_MEGABYTES
        return ABSENT, f"not fetched yet; the first build fetches it ({size} MB)", "ladder build"
    return OK, f"nvcc {nvcc.version} in {nvcc.path.parent}", ""


def _emulator() -> _Result:
    return OK, str(emulator_library().directory), ""


def _confinement() -> _Result:
    from ladder.common import sandbox
    from ladder.common.isolation import Child

    with tempfile.TemporaryDirectory(prefix="ladder-") as folder, Child(folder=Path(folder)) as child:
        gaps = sandbox.missing(child.protections)
        found = ", ".join(child.protections) or "none"
    if not gaps:
        return OK, f"stages and exercises have {found}", ""
    remedy = f"What is checked may {' and '.join(gaps)}. Linux 5.13 with Landlock, or a container of its own."
    return ABSENT, found, remedy


def _torch() -> _Result:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return MISSING, "torch is not installed", f"{sys.executable} -m pip install 'torch>=2.6'"
    import torch

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
    return OK, f"{version}, built for {built_for}", ""


def _gpu() -> _Result:
    listed = _output(["nvidia-smi", "-L"])
    try:
        import torch
    except ImportError:
        return ABSENT, listed.partition("\n")[0] or "none; the emulator needs none", ""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return OK, f"{torch.cuda.get_device_name()}, sm_{major}{minor}", ""
    if listed:
        remedy = "Install torch's CUDA build." if not torch.version.cuda else "Check the driver: nvidia-smi"
        return ABSENT, f"{listed.splitlines()[0]}, but torch cannot use it", remedy
    return ABSENT, "none; the emulator needs none", ""


def _system_compiler() -> _Result:
    nvcc = toolchain.system_nvcc()
    if nvcc is None:
        return ABSENT, "none; the pinned one builds for a GPU too", ""
    return OK, f"nvcc {nvcc.version} ({nvcc.path}), used for the GPU alone", ""


def _nsight_compute() -> _Result:
    from ladder.counts.nsight import find_ncu

    try:
        return OK, f"{find_ncu()}, for ladder profile", ""
    except ProfilerError:
        return ABSENT, "none; ladder profile --import reads reports, with pip install ncu-report", ""


def _cache() -> _Result:
    root = cache.root()
    probe = root / ".doctor"
    cache.write_text(probe, "")
    probe.unlink(missing_ok=True)
    free = shutil.disk_usage(root).free
    if free < _NEEDED_BYTES:
        return (
            MISSING,
            f"{root}: {free / 1e9:.1f} GB free",
            "Free some space, or set XDG_CACHE_HOME to a larger disk.",
        )
    builds = f"{housekeeping.size() / 1e6:,.0f} of at most {housekeeping.MOST_BYTES / 1e6:,.0f} MB of builds"
    return (
        OK,
        f"{root} ({files.total_bytes(root) / 1e6:,.0f} MB, with {builds}; {free / 1e9:.0f} GB free)",
        "",
    )


def _stages() -> _Result:
    ladder = stages.discover()
    names = ", ".join(stage.name for stage in ladder) or "none"
    if ladder.broken:
        return MISSING, names, "\n".join(str(error) for error in ladder.broken.values())
    return OK, names, ""


_CHECKS: tuple[tuple[str, Callable[[], _Result]], ...] = (
    ("machine", _machine),
    ("Python", _python),
    ("Python headers", _python_headers),
    ("C++ compiler", _gxx),
    ("make", lambda: _program("make", "make")),
    ("nm", lambda: _program("nm", "binutils")),
    ("pinned CUDA compiler", _pinned_compiler),
    ("system CUDA compiler", _system_compiler),
    ("emulator", _emulator),
    ("confinement", _confinement),
    ("torch", _torch),
    ("GPU", _gpu),
    ("Nsight Compute", _nsight_compute),
    ("cache", _cache),
    ("stages", _stages),
)


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def add(commands: Any) -> None:
    """Adds this subcommand to the argparse subparsers ``commands``."""
    from ladder.cli.options import add_command

    add_command(commands, "doctor", _run, "say what is installed and what to do about what is missing")


def _run(options: argparse.Namespace) -> int:
    return main()


def main() -> int:
    """Prints the findings; returns 1 if something is missing."""
    states = []
    for finding in examine():
        states.append(finding.state)
        print(f"{_coloured(finding.state)}  {finding.what:<21} {finding.detail}")
        for text in finding.remedy.splitlines():
            print(f"{'':31} {text}")
    return 1 if MISSING in states else 0


_COLOURS = {OK: 32, ABSENT: 33, MISSING: 31}


def _coloured(state: str) -> str:
    text = f"{state:<7}"
    return (
        f"\033[{_COLOURS[state]}m{text}\033[0m"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ
        else text
    )
