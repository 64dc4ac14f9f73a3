"""Nsight Compute's command line, and its error messages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from ladder.errors import ProfilerError

#: Messages on ncu's ==ERROR== lines, with advice on each.
_ADVICE = {
    "ERR_NVGPUCTRPERM": ProfilerError(
        "Nsight Compute has no permission to read the GPU's counters (ERR_NVGPUCTRPERM)",
        "Run it as root, or let the driver admit all users: options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reboot. On a rented GPU that is "
        "often impossible.",
    ),
    **dict.fromkeys(
        ("profiling tool", "driver resource was unavailable"),
        ProfilerError(
            "another process is using the GPU's counters",
            "Wait until it has ended, or stop it (ncu, nsys; DCGM: dcgmi profile --pause), then run this "
            "again.",
        ),
    ),
    "LibraryNotLoaded": ProfilerError(
        "Nsight Compute cannot reach the driver's profiling library (LibraryNotLoaded)",
        "In a container this needs a runtime that passes the driver through, and --cap-add=SYS_ADMIN.",
    ),
    "not compatible with Nsight Compute": ProfilerError(
        "this Nsight Compute and the GPU's driver do not go together",
        "Install an ncu of the driver's CUDA version or newer; LADDER_NCU can name it.",
    ),
    "Failed to find metric": ProfilerError(
        "this Nsight Compute does not know a requested metric",
        "ncu --query-metrics lists those it knows for this GPU.",
    ),
}


def find_ncu() -> Path:
    """Finds ncu: from ``LADDER_NCU``, on the PATH, or in a CUDA toolkit. Raises :class:`ProfilerError`."""
    candidates: list[Path] = []
    for name in (os.environ.get("LADDER_NCU"), shutil.which("ncu")):
        candidates += [Path(name)] if name else []
    candidates.append(Path("/usr/local/cuda/bin/ncu"))
    candidates += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    for path in candidates:
        if os.access(path, os.X_OK):
            return path
    raise ProfilerError(
        "Nsight Compute (ncu) is not there", "It comes with the CUDA toolkit; LADDER_NCU can name it."
    )


def command(
    program: Sequence[str],
    *,
    metrics: Iterable[str] = (),
    sections: Iterable[str] = (),
    kernel: str | None = None,
    report: Path | None = None,
    only_marked: bool = False,
    ncu: Path | str = "ncu",
) -> list[str]:
    """The command that runs ``program`` under ncu and prints the raw page, or writes ``report`` (.ncu-rep).

    ``kernel`` is a regular expression for kernel names. ``only_marked`` profiles only between
    cudaProfilerStart and cudaProfilerStop, and records NVTX ranges. The clocks are not locked, since counts
    do not depend on them.
    """
    words = [str(ncu), "--clock-control", "none", "--target-processes", "all"]
    if only_marked:
        words += ["--profile-from-start", "off", "--nvtx"]
    if kernel is not None:
        words += ["-k", f"regex:{kernel}"]
    for section in sections:
        words += ["--section", section]
    names = list(dict.fromkeys(metrics))
    if names:
        words += ["--metrics", ",".join(names)]
    words += ["--force-overwrite", "-o", str(report)] if report else page_options("raw")
    return [*words, *program]


def import_command(report: Path, page: str, *options: str, ncu: Path | str = "ncu") -> list[str]:
    """The command that prints a page of a report as CSV."""
    return [str(ncu), "--import", str(report), *page_options(page), *options]


def page_options(page: str) -> list[str]:
    """The options that make ncu print a page as CSV with unscaled numbers."""
    return ["--csv", "--page", page, "--print-units", "base"]


def run(words: Sequence[str], *, timeout_s: float | None = None) -> str:
    """Runs an ncu command and returns its output.

    Raises :class:`ProfilerError` with advice if ncu fails.
    """
    try:
        # Print numbers in the C locale, whatever the user's is.
        environment = {**os.environ, "LC_ALL": "C"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=timeout_s)
    except FileNotFoundError as error:
        raise ProfilerError(f"{words[0]} is not there", "LADDER_NCU can name Nsight Compute.") from error
    except subprocess.TimeoutExpired as error:
        raise ProfilerError(f"ncu took longer than {timeout_s:g} s", "Profile fewer launches.") from error
    check_messages(done.stdout + done.stderr)
    if done.returncode != 0:
        raise ProfilerError(f"ncu failed:\n{_tail(done.stderr or done.stdout)}")
    return done.stdout


def check_messages(text: str) -> None:
    """Raises :class:`ProfilerError` if ncu's whole output ``text`` reports that it cannot profile here."""
    for line in text.splitlines():
        if line.startswith("==ERROR==") or "ERR_NVGPUCTRPERM" in line:
            for key, advice in _ADVICE.items():
                if key in line:
                    raise ProfilerError(f"{advice.message}: {_without_mark(line)}", advice.hint)


def why_empty(text: str) -> str:
    """Explains why ncu's output contains no table of a launch."""
    if "No kernels were profiled" in text:
        return "No kernel was profiled: the program launched none, or none of that name."
    return "It is printed by ncu --csv --page raw."


def _without_mark(line: str) -> str:
    return re.sub(r"^==\w+==\s*", "", line)


def _tail(text: str) -> str:
    lines = [_without_mark(line) for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-8:])
