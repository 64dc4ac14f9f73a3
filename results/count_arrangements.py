#!/usr/bin/env python3
"""Counts on the emulator what h4_arrangement's arrangements cost, beside what formulas predict.

    python results/count_arrangements.py --out results/hstu_arrangements.csv

One row an arrangement: one head, 1,024 queries and keys without a mask, d = 64. ``predicted`` says the same
by formula. Compiling takes some minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ladder.common import files
from ladder.evaluation import evaluate
from ladder.operations import HstuProblem
from ladder.stages import Stage, discover

STAGE = "h4_arrangement"
TOKENS, HEAD_DIM = 1024, 64
PROBLEM = HstuProblem(1, HEAD_DIM, (TOKENS,), window=(-1, -1), dtype="f16")
#: Of a cp.async of a warp, 16 a lane.
_COPY_BYTES = 512


@dataclass(frozen=True)
class Arrangement:
    """Warps a block, queries a warp, keys a tile; where Q is, and whether warps share out the keys."""

    workers: int = 4
    rows: int = 16
    keys: int = 64
    q_in_registers: bool = True
    over_keys: bool = False

    @property
    def options(self) -> dict[str, str]:
        """Of the rung."""
        return {
            "WORKERS": str(self.workers),
            "ROWS": str(self.rows),
            "KEYS": str(self.keys),
            "Q_IN_REGISTERS": str(int(self.q_in_registers)),
            "OVER_KEYS": str(int(self.over_keys)),
        }

    @property
    def title(self) -> str:
        what = "keys" if self.over_keys else "queries"
        place = "registers" if self.q_in_registers else "shared memory"
        return f"{self.workers} warps share {what}, {self.rows} x {self.keys} a tile, Q in {place}"


ARRANGEMENTS = (
    Arrangement(),
    Arrangement(q_in_registers=False),
    Arrangement(q_in_registers=False, keys=32),
    Arrangement(rows=32),
    Arrangement(workers=8),
    Arrangement(workers=2),
    Arrangement(over_keys=True, keys=32),
)


def predicted(a: Arrangement) -> dict[str, int]:
    """The counts by formula, for N = M = 1,024 and d = 64."""
    n, d = TOKENS, HEAD_DIM
    block_rows = a.rows if a.over_keys else a.workers * a.rows
    buffer_keys = a.workers * a.keys if a.over_keys else a.keys
    blocks, buffers = n // block_rows, n // buffer_keys
    of_q = 0 if a.q_in_registers else n // 16 * (d // 16) * buffers
    # After the last keys the kernel orders one buffer more, of zeros.
    copied = blocks * (buffers + 1) * 2 * buffer_keys * d * 2
    q_bytes = 0 if a.q_in_registers else a.workers * a.rows * d * 2
    return {
        "blocks": blocks,
        "mma_instructions": 2 * (n // 16) * (n // 8) * (d // 16),
        "ldmatrix_instructions": 2 * (n // a.rows) * (n // 16) * (d // 16) + of_q,
        "cp_async_instructions": copied // _COPY_BYTES,
        "smem_bytes": 2 * 2 * buffer_keys * d * 2 + q_bytes,
    }


def counted(a: Arrangement, stage: Stage) -> dict[str, int]:
    """The same by the emulator."""
    result = evaluate(stage, PROBLEM, backend="emulator", options=a.options)
    if not result.passed:
        raise SystemExit(f"{a.title}: {result.text}")
    [launch] = result.execution.launches
    instructions = launch.instructions()
    copies = instructions[instructions["ptx"].str.contains(r"cp\.async\.c[ag]\.")]
    return {
        "blocks": launch.grid[0] * launch.grid[1] * launch.grid[2],
        **{name: int(result.row[name]) for name in ("mma_instructions", "ldmatrix_instructions")},
        "cp_async_instructions": int(copies["executed"].sum()),
        "smem_bytes": launch.dynamic_smem_bytes,
    }


@contextmanager
def of_one_head_dim() -> Iterator[Stage]:
    """The rung for d = 64 alone, which compiles in a quarter of the time."""
    rung = discover()[STAGE]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(rung.path, folder, dirs_exist_ok=True)
        kernel = Path(folder) / "kernel.cu"
        source = kernel.read_text()
        narrowed = source.replace("dispatch_head_dim<32, 64, 128, 256>", f"dispatch_head_dim<{HEAD_DIM}>")
        if narrowed == source:
            raise SystemExit(f"{rung.kernel} no longer dispatches on the head dims that it lists")
        kernel.write_text(narrowed)
        yield dataclasses.replace(rung, path=Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .csv")
    options = parser.parse_args()
    with of_one_head_dim() as stage:
        rows = []
        for arrangement in ARRANGEMENTS:
            print(arrangement.title, flush=True)
            rows.append({**dataclasses.asdict(arrangement), **counted(arrangement, stage)})
    files.write(options.out, pd.DataFrame(rows).to_csv(index=False).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
