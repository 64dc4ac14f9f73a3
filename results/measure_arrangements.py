#!/usr/bin/env python3
"""Measures v6_lean in several arrangements, with ptxas's resource usage, and torch's backends in one run.

    python3 results/measure_arrangements.py --out results/h200/arrangements.csv

Writes one row per contender and problem, like ``python -m ladder.bench gpu``, plus ``registers`` and
``spill_bytes`` (stores) per thread for the arrangements. Needs what ``measure_counters.py`` needs, except
Nsight Compute.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ladder import stages
from ladder.backends import get_backend
from ladder.bench import gpu
from ladder.build import toolchain
from ladder.common import files
from ladder.errors import LadderError
from ladder.operations import Problem, get_operation

STAGE = "v6_lean"
#: The options of each arrangement; the default comes first.
ARRANGEMENTS = (
    "",
    "ROWS=16",
    "ROWS=16,KEYS=32",
    "ROWS=16,KEYS=64",
    "ROWS=16,PARTS=1",
    "ROWS=16,BUFFERS=3",
    "ROWS=16,WORKERS=8",
    "ROWS=16,WORKERS=12",
    "ROWS=32",
    "ROWS=32,KEYS=32",
    "ROWS=32,KEYS=64",
    "ROWS=32,PARTS=1",
    "ROWS=32,WORKERS=8",
)
PROBLEMS = [
    Problem(4, 16, 4096, 4096, head_dim, dtype="bf16", is_causal=is_causal)
    for head_dim in (32, 64, 128)
    for is_causal in (False, True)
]


def resources(spec: str) -> pd.DataFrame:
    """Columns d, registers, spill_bytes of the bf16 kernels, as ptxas reports them for this GPU."""
    stage, options = stages.stage_and_options(spec)
    nvcc = toolchain.system_nvcc() or toolchain.pinned_nvcc()
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    with tempfile.TemporaryDirectory() as folder:
        command = [str(nvcc.path), "-std=c++20", "-O3", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
        command += [f"-D{name}={value}" for name, value in options.items()]
        command += [f"-I{stages.include_directory()}", str(stage.kernel), "-o", f"{folder}/kernel.cubin"]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    rows = []
    for name, body in re.findall(r"Compiling entry function '(\S+)'(.*?Used \d+ registers)", report, re.S):
        if "bfloat16" in name:
            d = re.search(r"Li(\d+)E", name)
            registers, spills = re.search(r"Used (\d+)", body), re.search(r"(\d+) bytes spill stores", body)
            assert d and registers and spills
            rows.append((int(d[1]), int(registers[1]), int(spills[1])))
    return pd.DataFrame(rows, columns=["d", "registers", "spill_bytes"])


def measure() -> pd.DataFrame:
    """One row per problem and arrangement or torch backend. Raises :class:`LadderError`."""
    get_backend("cuda")
    specs = [f"{STAGE}:{options}" if options else STAGE for options in ARRANGEMENTS]
    with ThreadPoolExecutor() as pool:
        reports = pool.map(resources, specs)
        known = pd.concat([r.assign(contender=spec) for spec, r in zip(specs, reports, strict=True)])
        return gpu.measure(PROBLEMS, specs).merge(known, on=["contender", "d"], how="left")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    out = parser.parse_args().out
    try:
        files.require_target(out)
        frame = measure()
    except LadderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    frame.to_csv(out, index=False, float_format="%.6g")
    Console(width=150).print(gpu.render(frame, get_operation("attention")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
