"""In which order ptxas issues a rung's ldmatrix and mma: from machine code, so it takes no GPU.

    pip install nvidia-cuda-nvdisasm
    python -m tools.measure.sass_order v2 v4 --nvdisasm PATH

nvdisasm is in that wheel as nvidia/cu13/bin/nvdisasm. A rung is compiled for sm_90 with the pinned compiler,
for d = 64 and bf16 alone. A row of the table is a kernel: ``4 ldmatrix, 2 mma, ...`` in the order of the
machine code, with the number of ldmatrix before the first mma.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ladder.compile import toolchain
from ladder.stages import discover, include_directory

ARCH = "sm_90"
_NAMES = {"LDSM": "ldmatrix", "HMMA": "mma"}


def runs(listing: str) -> list[tuple[str, int]]:
    """The instructions of a kernel's listing that are LDSM or HMMA, as runs of the same: (name, how many)."""
    opcodes = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+)", listing)
    return [
        (_NAMES[name], len(list(group)))
        for name, group in itertools.groupby(word for word in opcodes if word in _NAMES)
    ]


def listing(stage: str, nvdisasm: str) -> str:
    """The machine code of a rung's one kernel."""
    rung = discover()[stage]
    nvcc = toolchain.pinned_nvcc()
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        flags = ["-std=c++20", "-O3", "-cubin", f"-arch={ARCH}", "-DLADDER_HEAD_DIMS=64", "-DLADDER_DTYPES=4"]
        include = [f"-I{rung.path}", f"-I{include_directory()}"]
        subprocess.run([nvcc.path, *flags, *include, rung.kernel, "-o", cubin], check=True)
        shown = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True)
    return shown.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="The order of ldmatrix and mma in machine code.")
    parser.add_argument("stages", nargs="+", metavar="STAGE")
    parser.add_argument("--nvdisasm", default="nvdisasm", metavar="PATH")
    options = parser.parse_args()
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["stage", "arch", "nvcc", "ldmatrix_first", "order"])
    for stage in options.stages:
        found = runs(listing(stage, options.nvdisasm))
        order = ", ".join(f"{count} {name}" for name, count in found)
        table.writerow([stage, ARCH, toolchain.pinned_nvcc().version, found[0][1], order])
    return 0


if __name__ == "__main__":
    sys.exit(main())
