"""The interpreter's speed in warp instructions per second and core."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ladder.compile import toolchain
from ladder.errors import BuildError, LadderError
from ladder.run.emulator import Launch, Module, session

RUNS = 5
HOPPER = "sm_90a"
#: Multiplications and additions of one warp's instruction, in these kernels.
OPERATIONS = {"mma_instructions": 2 * 16 * 8 * 16, "wgmma_instructions": 2 * 16 * 64 * 16}


@dataclass(frozen=True)
class Speed:
    """One kernel's speed on ``threads`` host threads. ``cpu_seconds`` is their total CPU time;
    ``checked_cpu_seconds`` is the same under the sanitizer. ``operations`` are those of tensor cores, a
    multiplication and an addition being two.
    """

    kernel: str
    threads: int
    warp_instructions: int
    seconds: float
    cpu_seconds: float
    checked_cpu_seconds: float
    operations: int

    @property
    def per_second_and_core(self) -> float:
        """Warp instructions per second of CPU time, which the machine's other load does not affect."""
        return self.warp_instructions / self.cpu_seconds

    @property
    def operations_per_second_and_core(self) -> float:
        """Operations of tensor cores per second of CPU time."""
        return self.operations / self.cpu_seconds

    @property
    def slowdown_when_checked(self) -> float:
        """The factor by which the sanitizer slows a launch down."""
        return self.checked_cpu_seconds / self.cpu_seconds


def measure(threads: int = 1, runs: int = RUNS) -> list[Speed]:
    """Median times of the kernels in ``kernels.cu`` and ``wgmma.cu``, without a warm-up run of each."""
    module = Module(_ptx("kernels.cu", "compute_80"))
    hopper = Module(_ptx("wgmma.cu", "compute_90a"), HOPPER)
    return [_measure(name, run, threads, runs) for name, run in _workloads(module, hopper, threads).items()]


def _measure(name: str, run: Callable[[], Launch], threads: int, runs: int) -> Speed:
    launch = run()
    counts = launch.totals()
    instructions = counts["executed"]
    assert instructions is not None
    wall, cpu = _medians(run, runs)
    with session(launch.arch, check=True):
        run()
        _, checked = _medians(run, runs)
    operations = sum((counts[counter] or 0) * each for counter, each in OPERATIONS.items())
    return Speed(name, threads, instructions, wall, cpu, checked, operations)


def _medians(run: Callable[[], Launch], runs: int) -> tuple[float, float]:
    """Seconds by the clock, and of CPU time."""
    walls, cpus = [], []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def _workloads(module: Module, hopper: Module, threads: int) -> dict[str, Callable[[], Launch]]:
    n, rounds, blocks = 256, 200, 8
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    half = generator.standard_normal(2 * 4096).astype(np.float16)
    c, sums = np.empty((n, n), np.float32), np.empty(blocks * 4 * 32 * 32, np.float32)
    doubles = generator.standard_normal(2048)
    tiles = n // 32
    return {
        "scalar": lambda: module.launch("scalar", (tiles, tiles), (32, 32), [a, b, c, n], threads=threads),
        "tensor": lambda: module.launch(
            "tensor", blocks, 128, [half[:4096], half[4096:], sums, rounds], threads=threads
        ),
        "wgmma": lambda: hopper.launch(
            "wgmma", blocks, 128, [half[:4096], half[4096:], sums, rounds], threads=threads
        ),
        "wmma": lambda: module.launch(
            "wmma", blocks, 128, [half[:4096], half[4096:], sums, rounds // 4], threads=threads
        ),
        "fp64": lambda: module.launch(
            "fp64", blocks, 256, [doubles, np.empty_like(doubles), rounds // 4], threads=threads
        ),
    }


def _ptx(source_name: str, arch: str) -> str:
    with tempfile.TemporaryDirectory(prefix="ladder-") as directory:
        output = Path(directory) / "kernels.ptx"
        source = Path(__file__).parent / source_name
        command = [str(toolchain.pinned_nvcc().path), "-std=c++20", "-O3", f"-arch={arch}", "-ptx"]
        command += ["-ccbin", toolchain.gxx(), str(source), "-o", str(output)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise BuildError(f"{source.name} does not compile:\n{result.stderr.strip()}")
        return output.read_text()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=1, help="host threads (1)")


def main(options: argparse.Namespace) -> int:
    """Measures and prints the table."""
    table = Table(
        "kernel",
        "warp instructions",
        "seconds",
        "million a second and core",
        "Gop on tensor cores a second and core",
        "checked: x as long",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    if options.threads < 1:
        raise LadderError(f"--threads {options.threads}; at least one runs the kernels")
    for speed in measure(options.threads):
        table.add_row(
            speed.kernel,
            f"{speed.warp_instructions:,}",
            f"{speed.seconds:.3f}",
            f"{speed.per_second_and_core / 1e6:.1f}",
            f"{speed.operations_per_second_and_core / 1e9:.2f}" if speed.operations else "",
            f"{speed.slowdown_when_checked:.1f}",
        )
    Console().print(table)
    return 0
