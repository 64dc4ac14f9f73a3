#!/usr/bin/env python3
"""How long `ladder debug` takes to a rung's first stop, with an empty cache and once built. It takes no GPU.

    sudo nice -n -20 python -m tools.measure.measure_first_stops [RUNG ...] >results/first_stops.csv

The empty cache has the CUDA toolkit, which is fetched once. A row has the least of the runs' wall-clock times
and the processor time of that run, of all its processes. Other work on the machine makes the wall-clock times
longer, unless the measurement has a higher priority; `load` is the load average before the row's runs.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from ladder.compile import pinned_nvcc
from ladder.compile.toolchain import prefix
from ladder.stages import discover

COLUMNS = (
    "rung",
    "cold_s",
    "cold_cpu_s",
    "built_s",
    "built_cpu_s",
    "load",
    "nice",
    "cpus",
    "cpu",
    "nvcc",
    "date",
)
_DEBUG = (sys.executable, "-m", "ladder", "debug")
_PROBLEM = ("--problem", "1,1,64,64,64", "--causal", "--command", "quit")


def first_stop(rung: str, cache: Path) -> tuple[float, float]:
    """Seconds on the wall, and of processor time, until the debugger has stopped and ended."""
    null = os.open(os.devnull, os.O_RDWR)
    begin = time.monotonic()
    process = os.posix_spawn(
        sys.executable,
        [*_DEBUG, rung, *_PROBLEM],
        {**os.environ, "XDG_CACHE_HOME": str(cache)},
        file_actions=[(os.POSIX_SPAWN_DUP2, null, stream) for stream in (0, 1)],
    )
    _, status, used = os.wait4(process, 0)
    wall = time.monotonic() - begin
    os.close(null)
    if status:
        raise RuntimeError(f"ladder debug {rung} has failed")
    return wall, used.ru_utime + used.ru_stime


def measure(rung: str, runs: int) -> dict[str, str]:
    cold, built = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name, "flash-ladder")
            folder.mkdir()
            (folder / prefix().name).symlink_to(prefix())
            cold.append(first_stop(rung, Path(name)))
            built.append(first_stop(rung, Path(name)))
    seconds = [f"{number:.1f}" for number in (*min(cold), *min(built))]
    return {"rung": rung, **dict(zip(COLUMNS[1:5], seconds, strict=True))}


def processor() -> str:
    """What the system calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")


def main() -> int:
    parser = argparse.ArgumentParser(description="Times of the debugger's first stop.")
    names = [one.name for one in discover() if one.name.startswith("v")]
    parser.add_argument("rungs", nargs="*", default=names)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    table = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    table.writeheader()
    where = {
        "nice": os.nice(0),
        "cpus": os.cpu_count(),
        "cpu": processor(),
        "nvcc": pinned_nvcc().version,
        "date": date.today().isoformat(),
    }
    for rung in options.rungs:
        load = f"{os.getloadavg()[0]:.1f}"
        table.writerow({**measure(rung, options.runs), "load": load, **where})
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
