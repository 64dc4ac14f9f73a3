"""The parameters of the model of time, each by a loop that measures nothing else, on this machine's GPU."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from ladder.compile import toolchain
from ladder.errors import ExecutionError, LadderError
from ladder.run.backends import get_backend
from tools.bench.provenance import measured_on

SOURCE = Path(__file__).with_suffix(".cu")


def measure() -> dict[str, float]:
    """The parameters by their names in ``emulator/timing/parameters.def``.

    Raises :class:`LadderError` without a GPU of sm_90.
    """
    get_backend("cuda")
    nvcc = toolchain.system_nvcc() or toolchain.pinned_nvcc()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "latencies"
        command = [
            str(nvcc.path),
            "-std=c++17",
            "-O3",
            "-gencode=arch=compute_90a,code=sm_90a",
            str(SOURCE),
            "-o",
            str(program),
        ]
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            raise LadderError(f"{SOURCE.name} cannot be compiled: {made.stderr.strip()[:500]}")
        done = subprocess.run([str(program)], capture_output=True, text=True)
    if done.returncode:
        raise ExecutionError(f"{SOURCE.name}: {done.stderr.strip()}")
    pairs = (line.split(",") for line in done.stdout.split())
    return {name: float(value) for name, value in pairs}


def as_toml(values: dict[str, float], source: str) -> str:
    """The section of a GPU's file in ``ladder/counts/time/rates``."""
    lines = [f"[model.{name}]\nvalue = {value:g}\nsource = {source!r}\n" for name, value in values.items()]
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: it prints the section."""


def main(options: argparse.Namespace) -> int:
    """Measures, and prints the section of the GPU's file."""
    where = measured_on()
    source = f"tools/bench/latencies.cu on an {where['gpu']}, {where['compiler']}, {where['date']}"
    print(as_toml(measure(), source))
    return 0
