"""Measures what a GPU counts for single shared-memory accesses, and how it treats inconsistent masks.

    python3 -m tools.measure.measure_accesses --out DIR

Needs a GPU, ncu and nvcc, and takes about a minute. It writes into DIR, row by row:

accesses.csv   a row for each case of accesses.cu: what Nsight Compute counted
masks.csv      a row for each case of masks.cu: what the 32 lanes got, or the error

``results/h200/`` holds what it wrote on an H200; the emulator is tested against it.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
METRICS = {
    "shared_loads": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared_stores": "smsp__sass_inst_executed_op_shared_st.sum",
    "ldmatrix": "smsp__inst_executed_op_ldsm.sum",
    "wavefronts_ld": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "wavefronts_st": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "wavefronts_atom": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "conflicts_ld": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "conflicts_st": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "conflicts_atom": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum",
    "conflicts_ldgsts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "sectors_ld": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
}
HANG_S = 5


def output(*command: str | Path, timeout: float | None = None) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout)
    return done.stdout


def build(name: str, folder: Path) -> Path:
    program = folder / name
    source = HERE / f"{name}.cu"
    subprocess.run(
        ["nvcc", "-std=c++20", "-O3", "-lineinfo", "-arch=sm_90", str(source), "-o", str(program)], check=True
    )
    return program


def measure_accesses(program: Path, path: Path) -> None:
    names = output(program, "--list").splitlines()
    text = output(
        *("ncu", "--clock-control", "none", "--csv", "--page", "raw"),
        *("--metrics", ",".join(METRICS.values()), program),
    )
    lines = [line for line in text.splitlines() if line.startswith('"')]
    head, _units, *rows = csv.reader(lines)
    if len(rows) != len(names):
        raise SystemExit(f"{len(names)} cases, and ncu saw {len(rows)} kernels: {text[-2000:]}")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", *METRICS])
        for name, row in zip(names, rows, strict=True):
            found = dict(zip(head, row, strict=True))
            values = [found.get(metric, "").replace(",", "") for metric in METRICS.values()]
            writer.writerow([name, *values])


def measure_masks(program: Path, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["case", "lanes"])
        for name in output(program, "--list").splitlines():
            try:
                answer = output(program, name, timeout=HANG_S).strip()
            except subprocess.TimeoutExpired:
                answer = "hangs"
            writer.writerow([name, answer])
            file.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    measure_accesses(build("accesses", out), out / "accesses.csv")
    measure_masks(build("masks", out), out / "masks.csv")


if __name__ == "__main__":
    main()
