"""The peak rates of an SM's units, which no kernel exceeds."""

from __future__ import annotations

import argparse
import io
import subprocess
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from ladder.common import files
from ladder.common.progress import steps
from ladder.compile import CudaTarget, build_program
from ladder.errors import ExecutionError, LadderError
from ladder.run.backends import get_backend
from tools.bench.provenance import measured_on

SOURCE = Path(__file__).with_suffix(".cu")
#: What is counted for each hardware unit.
COUNTED = {
    "mma.sync": "operations",
    "ldmatrix": "bytes",
    "ex2.approx": "results",
    "fma": "operations",
    "mma.sync f16": "operations",
    "shfl": "lanes",
    "max": "results",
    "L2 read": "bytes",
    "L2 write": "bytes",
    "launch": "launches",
}
ROUNDS, LAUNCHES = 1 << 16, 9


def measure() -> pd.DataFrame:
    """Measures each unit of the SM alone, with 16 warps per SM keeping it busy; one row per unit.

    Columns: the environment, ``unit``, ``counted`` (what is counted), ``per_second``, ``clock_ghz`` (SM clock
    during the run), ``per_clock_and_sm``, ``time_ms`` (median of a launch).

    Raises :class:`LadderError` without a GPU of sm_80 or later.
    """
    get_backend("cuda")
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        raise LadderError("this GPU is an sm_{}{}".format(*capability), "The loops take sm_80 or later.")
    with steps("Building", 1) as progress, progress.step(SOURCE.name):
        program = build_program([SOURCE], CudaTarget("native"))
    with steps("Measuring", 1) as progress, progress.step("the units of an SM"):
        done = subprocess.run([str(program), str(ROUNDS), str(LAUNCHES)], capture_output=True, text=True)
    if done.returncode:
        raise ExecutionError(f"{SOURCE.name}: {done.stderr.strip()}")
    return frame(done.stdout, measured_on())


def frame(output: str, where: dict[str, str]) -> pd.DataFrame:
    """Parses the program's output into rows that begin with the columns ``where``."""
    names = ["unit", "work", "time_ms", "clock_ghz"]
    said = pd.read_csv(io.StringIO(output), header=None, names=names)
    rows = pd.DataFrame({"unit": said["unit"], "counted": said["unit"].map(COUNTED)})
    rows["per_second"] = said["work"] / said["time_ms"] * 1e3
    rows["clock_ghz"] = said["clock_ghz"]
    rows["per_clock_and_sm"] = rows["per_second"] / (rows["clock_ghz"] * 1e9) / int(where["sm_count"])
    rows["time_ms"] = said["time_ms"]
    for column, value in reversed(where.items()):
        rows.insert(0, column, value)
    return rows


def render(rows: pd.DataFrame) -> Table:
    table = Table(title=f"{rows.gpu[0]}, {rows.compiler[0]}, {rows.date[0]}")
    for name, justify in (
        ("unit", "left"),
        ("T/s", "right"),
        ("", "left"),
        ("a clock and SM", "right"),
        ("GHz", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in rows.to_dict("records"):
        rates = f"{row['per_second'] * 1e-12:,.2f}", row["counted"], f"{row['per_clock_and_sm']:,.1f}"
        table.add_row(row["unit"], *rates, f"{row['clock_ghz']:.3f}")
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the rows as CSV")


def main(options: argparse.Namespace) -> int:
    """Measures, prints the table and writes the CSV."""
    if options.out is not None:
        files.require_target(options.out)
    rows = measure()
    if options.out is not None:
        files.write(options.out, rows.to_csv(index=False, float_format="%.6g").encode())
    Console().print(render(rows))
    return 0
