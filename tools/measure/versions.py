#!/usr/bin/env python3
"""Runs part of the tests with several versions of Python and torch, and writes docs/versions.md.

    python3 -m tools.measure.versions --work DIR [--with python3.10 2.6] [--with python3.13 2.13] ...

Needs those Pythons with their headers, and a tree in which the emulator has been built (make compare); only
its Python module is recompiled for each Python. Each combination gets a virtual environment in DIR. Whether
torch is a CPU or a CUDA build depends on the package index; the table says which it was.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "versions.md"

PYTHONS = ("python3.10", "python3.11", "python3.12", "python3.13")
TORCHES = ("2.6", "2.13")

#: The tests to run: problems and tables, ncu's pages in pandas, and rungs that are built, emulated, compared
#: with torch's attention and compiled into a graph by torch.compile.
TESTS = (
    "tests/operations/test_problem.py",
    "tests/run/evaluation/test_table.py",
    "tests/call/test_functional.py",
    "tests/call/test_operators.py",
    "tests/run/backends/test_timing.py",
    "tests/counts/nsight/test_nsight.py",
    "tests/counts/profiling/test_profiling.py",
)
PACKAGES = (
    "numpy",
    "pandas>=2.0",
    "pybind11>=2.13",
    "pygments",
    "rich>=13",
    "tomli",
    "pytest>=8",
    "hypothesis>=6",
)
#: Prints the versions for a row of the table.
VERSIONS = """
import platform, pandas, torch
built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
number = torch.__version__.partition("+")[0]
print(platform.python_version(), f"{number} ({built_for})", pandas.__version__, sep="|")
"""
#: Prints the include directory and the file suffix of extensions.
PATHS = """
import pybind11, sysconfig
print(sysconfig.get_paths()["include"], pybind11.get_include(), sysconfig.get_config_var("EXT_SUFFIX"))
"""


@dataclass(frozen=True)
class Outcome:
    """The versions of a combination, and the result of its tests."""

    python: str
    torch: str
    pandas: str
    outcome: str


def run(words: Sequence[object], **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs a command and returns its output; prints it if the command fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **settings)  # type: ignore[call-overload]
    if done.returncode != 0:
        print(f"$ {' '.join(map(str, words))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}", flush=True)
    return done


def environment(python: str, torch: str, work: Path) -> Path:
    """Makes a virtual environment with that torch; returns its Python. Raises SystemExit."""
    directory = work / f"{Path(python).name}-torch{torch}"
    interpreter = directory / "bin" / "python"
    if not interpreter.exists():
        run([python, "-m", "venv", directory])
        pip = [interpreter, "-m", "pip", "install", "-q"]
        if run([*pip, f"torch=={torch}.*"]).returncode or run([*pip, *PACKAGES]).returncode:
            shutil.rmtree(directory)
            raise SystemExit(f"torch {torch} cannot be installed for {python}")
    return interpreter


def build_module(interpreter: Path) -> None:
    """Builds the emulator's module for this Python, linked to the existing library. Raises SystemExit."""
    include, pybind11, suffix = run([interpreter, "-c", PATHS]).stdout.split()
    flags = ["-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"]
    flags += [f"-I{directory}" for directory in (include, pybind11, ROOT / "emulator")]
    library = ROOT / "ladder" / "_lib"
    sources = sorted((ROOT / "emulator" / "python").glob("*.cpp"))
    link = [f"-L{library}", "-lladder_emulator", "-Wl,-rpath,$ORIGIN/_lib"]
    if run(["g++", *flags, *sources, *link, "-o", ROOT / "ladder" / f"_emulator{suffix}"]).returncode:
        raise SystemExit(
            f"the emulator's module does not build for {interpreter}; has make compare been run?"
        )


def measure(python: str, torch: str, work: Path) -> Outcome:
    """Installs, builds and tests one combination."""
    interpreter = environment(python, torch, work)
    build_module(interpreter)
    version, torch_version, pandas_version = run([interpreter, "-c", VERSIONS]).stdout.split("|")
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    tests = run([interpreter, "-m", "pytest", "-q", *TESTS], cwd=ROOT, env=settings)
    counts = re.findall(r"\d+ (?:passed|failed|error\w*)", tests.stdout)
    return Outcome(version, torch_version, pandas_version.strip(), ", ".join(counts) or "did not run")


def page(outcomes: Sequence[Outcome]) -> str:
    """Writes the table with an introduction."""
    rows = [f"| {o.python} | {o.torch} | {o.pandas} | {o.outcome} |" for o in outcomes]
    return "\n".join(
        [
            "# Versions of Python and torch",
            "",
            f"Run by `tools/measure/versions.py` on {datetime.date.today().isoformat()},",
            "without a GPU. Tests that",
            "need one are left out. The tests, of all:",
            "",
            *(f"- `{test}`" for test in TESTS),
            "",
            "| Python | torch | pandas | tests |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="for the environments")
    parser.add_argument(
        "--with",
        nargs=2,
        action="append",
        dest="wanted",
        metavar=("PYTHON", "TORCH"),
        help="default: all pairs",
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for python, torch in options.wanted or itertools.product(PYTHONS, TORCHES):
        outcomes.append(measure(python, torch, options.work.resolve()))
        print(outcomes[-1], flush=True)
        PAGE.write_text(page(outcomes))
    return 1 if any("failed" in o.outcome or "error" in o.outcome for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
