#!/usr/bin/env python3
"""Measures how wgmma and TMA address memory, and what Nsight Compute counts for them.

    python3 -m tools.measure.measure_hopper --out DIR

Needs an H100 or H200, nvcc and ncu; takes a minute. It writes into DIR:

wgmma_places.csv  random matrix descriptors, and where in shared memory each element of B came from
tma_boxes.csv     random tensor maps: what the driver said of them, and what a load left in shared memory
hopper_counts.csv labelled launches of one or a few instructions each, with every metric as ncu gave it

Long results are stored as their CRC-32. ``tests/hardware/test_hopper.py`` runs the same program on the
emulator and requires the same results.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import struct
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

PROBE = Path(__file__).with_name("hopper_probe.cu")

SHAPES = (8, 16, 24, 32, 64, 96, 128, 160, 192, 256)
#: The widths that are also measured with transposed operands.
WITH_TRANSPOSED = (8, 64, 256)
PLACES, BOXES = 400, 320

METRICS = (
    "sm__inst_executed_pipe_tensor_op_gmma",
    "smsp__sass_inst_executed_op_shared_gmma",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma",
    "smsp__sass_inst_executed_op_tma_ld",
    "smsp__sass_inst_executed_op_tma_st",
    "smsp__sass_inst_executed_op_tma_red",
    "sm__inst_executed_pipe_tma",
    "l1tex__tmain_requests",
    "l1tex__m_xbar2l1tex_read_sectors_mem_global_op_tma_ld",
    "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_st",
    "l1tex__m_l1tex2xbar_write_sectors_mem_global_op_tma_red",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_misc",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_misc",
)


def wgmma_forms() -> str:
    """Generates the header with one function per form of wgmma."""
    parts = ["#pragma once", "template <int N, bool RS, int TA, int TB> struct Wgmma;"]
    for n in SHAPES:
        for in_registers in (False, True):
            forms = [(0, 0), (0, 1)] if in_registers else [(0, 0), (0, 1), (1, 0), (1, 1)]
            parts += [_form(n, in_registers, *form) for form in forms[: None if n in WITH_TRANSPOSED else 1]]
    return "\n".join(parts) + "\n"


def _form(n: int, in_registers: bool, ta: int, tb: int) -> str:
    count = n // 2
    after = count + (4 if in_registers else 1)
    d = ", ".join(f"%{i}" for i in range(count))
    a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}" if in_registers else f"%{count}"
    immediates = f"{tb}" if in_registers else f"{ta}, {tb}"
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) if in_registers else '"l"(da)'
    return f"""template <> struct Wgmma<{n}, {str(in_registers).lower()}, {ta}, {tb}> {{
  static __device__ void run(float (&d)[{count}], unsigned long long da, const unsigned (&a)[4],
                             unsigned long long db, int scale) {{
    asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{after + 1}, 0; "
                 "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16 "
                 "{{{d}}}, {a}, %{after}, p, 1, 1, {immediates}; }}"
                 : {outputs}
                 : {inputs}, "l"(db), "r"(scale));
  }}
}};"""


#: Runs the probe with arguments; raises CalledProcessError with the program's message in ``stderr``.
Run = Callable[..., None]


def read_places(path: Path) -> Iterator[dict[str, object]]:
    names = ("mode", "mn_major", "start", "leading", "stride", "base_offset")
    head, elements = struct.Struct("<6I"), 16 * 64 * 2
    data = path.read_bytes()
    for case, at in enumerate(range(0, len(data), head.size + elements)):
        places = data[at + head.size : at + head.size + elements]
        values = head.unpack_from(data, at)
        yield {"case": case, **dict(zip(names, values, strict=True)), "crc": zlib.crc32(places)}


#: Bytes of shared memory saved per case.
_DUMP = 16 * 1024


def read_boxes(path: Path) -> Iterator[dict[str, object]]:
    # struct Box and the two words after it; the case's number precedes them.
    box = struct.Struct("<6I5Q4Q5I5I5i4x2i")
    data = path.read_bytes()
    record = 4 + box.size + _DUMP
    for at in range(0, len(data), record):
        (case,) = struct.unpack_from("<i", data, at)
        kind, rank, swizzle, fill, to, _, *rest = box.unpack_from(data, at + 4)
        sizes, strides, widths, steps, start = rest[:5], rest[5:9], rest[9:14], rest[14:19], rest[19:24]
        code, timed_out = rest[24:]
        dump = data[at + 4 + box.size : at + record]

        def text(values: list[int], count: int) -> str:
            return " ".join(map(str, values[:count]))

        yield {
            "case": case,
            "type": kind,
            "swizzle": swizzle,
            "fill": fill,
            "to": to,
            "size": text(sizes, rank),
            "stride": text(strides, rank - 1),
            "box": text(widths, rank),
            "step": text(steps, rank),
            "at": text(start, rank),
            "code": code,
            "outcome": "timed out" if timed_out == 1 else "",
            "crc": zlib.crc32(dump) if timed_out == 0 else "",
        }


def probe_boxes(run: Run, folder: Path, cases: int = BOXES) -> list[dict[str, object]]:
    """Runs all cases; after a case that ends the process, which is its outcome, a new process continues."""
    rows: list[dict[str, object]] = []
    while len(rows) < cases:
        path = folder / f"boxes{len(rows)}"
        try:
            run("boxes", str(cases), str(path), str(len(rows)))
            rows += read_boxes(path)
        except subprocess.CalledProcessError as error:
            rows += read_boxes(path)
            words = error.stderr.rpartition("hopper_probe.cu:")[2].partition(": ")[2]
            rows.append({"case": len(rows), "outcome": words.strip()})
    return rows


def write(path: Path, rows: list[dict[str, object]], stamp: dict[str, str]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*names, *stamp])
        writer.writeheader()
        writer.writerows({**row, **stamp} for row in rows)


def read_counts(page: str, labels: list[str]) -> list[dict[str, object]]:
    """Reads ncu's raw page; one row per launch."""
    head, _, *lines = csv.reader(io.StringIO("\n".join(x for x in page.splitlines() if x.startswith('"'))))
    places = {name: head.index(f"{name}.sum") for name in METRICS}
    rows: list[dict[str, object]] = []
    for label, line in zip(labels, lines, strict=False):
        values = {name: line[place].replace(",", "") for name, place in places.items()}
        if "nan" not in values.values():
            rows.append({"label": label, **values})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures wgmma and TMA.")
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    def words(*command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    gpu, driver = words("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").split(", ")
    compiler = words("nvcc", "--version").rpartition("release ")[2].partition(",")[0]
    ncu = words("ncu", "--version").rpartition("Version ")[2].partition(" ")[0]
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    stamp = {"gpu": gpu, "driver": driver, "nvcc": compiler, "ncu": ncu, "date": today}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wgmma_forms.h").write_text(wgmma_forms())
        program = folder / "probe"
        flags = ["-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", f"-I{folder}"]
        subprocess.run(["nvcc", *flags, "-o", str(program), str(PROBE)], check=True, capture_output=True)

        def run(*arguments: str) -> None:
            subprocess.run([str(program), *arguments], check=True, capture_output=True, text=True, timeout=60)

        run("places", str(PLACES), str(folder / "places"))
        write(out / "wgmma_places.csv", list(read_places(folder / "places")), stamp)
        write(out / "tma_boxes.csv", probe_boxes(run, folder), stamp)
        # The list ends at the first launch that the hardware refuses.
        labels = subprocess.run([str(program), "count"], capture_output=True, text=True).stdout.splitlines()
        metrics = ",".join(f"{metric}.sum" for metric in METRICS)
        command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", metrics]
        page = subprocess.run([*command, str(program), "count"], capture_output=True, text=True).stdout
        write(out / "hopper_counts.csv", read_counts(page, labels), stamp)


if __name__ == "__main__":
    main()
