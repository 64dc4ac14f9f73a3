"""group<N>: collective operations of several warps, in two groups side by side with their own barriers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from tile_programs import CPP_TYPES, LAYOUTS, Kernel, Unit, compiled
from tile_results import Result, check, matrix

from ladder.operations import TORCH_DTYPES


@dataclass(frozen=True)
class Group:
    """Two groups of ``warps`` warps; each warp has a tile of ``rows`` x ``cols``."""

    warps: int
    dtype: str
    layout: str
    rows: int
    cols: int

    def __str__(self) -> str:
        return f"{self.warps}-{self.dtype}-{self.layout}-{self.rows}x{self.cols}"

    @property
    def kernel(self) -> Kernel:
        element = CPP_TYPES[self.dtype]
        arguments = f"{element}, Layout::{self.layout}, {self.warps}, {self.rows}, {self.cols}"
        return Kernel(f"groups<{arguments}>", (f"const {element} *", f"{element} *", "int "))


SIZES = ((16, 16), (16, 64), (32, 48), (16, 128))
FULL = [
    Group(warps, dtype, layout, *size)
    for warps, dtype, layout, size in itertools.product((1, 2, 3, 4, 8, 16), CPP_TYPES, LAYOUTS, SIZES)
    if 2 * warps * size[0] * size[1] * TORCH_DTYPES[dtype].itemsize <= 96 * 1024
]
PAIRWISE = [g for i, g in enumerate(FULL) if (i + i // 4 + i // 24) % 5 == 0]


def run(group: Group, unit: Unit) -> None:
    t = TORCH_DTYPES[group.dtype]
    height = group.warps * group.rows
    smem_bytes = 2 * height * group.cols * t.itemsize
    for kind, rows in (("random", height), ("running", height), ("running", height - 5), ("random", 3)):
        a = torch.stack([matrix(kind, height, group.cols, t, seed) for seed in (0, 1)])
        ragged = a.clone()
        ragged[:, rows:] = 0
        results = []
        for g in range(2):
            for name in ("shared to global", "shared to registers", "asynchronous load"):
                results.append(Result(f"{name}, group {g}", ragged[g]))
            results.append(Result(f"registers to shared, group {g}", -ragged[g]))
            results.append(Result(f"global to registers, group {g}", ragged[g]))
        written = torch.full((sum(r.expected.numel() for r in results),), torch.nan, dtype=t)
        threads = 2 * 32 * group.warps
        launch = compiled(unit).launch(group.kernel.name, 1, threads, (a, written, rows), smem_bytes)
        check(results, written, f"{kind} {group} with {rows} rows")
        assert launch.totals()["conflicts"] == 0


@pytest.mark.parametrize("group", PAIRWISE, ids=str)
def test_groups(group: Group) -> None:
    run(group, tuple(g.kernel for g in PAIRWISE if g.warps == group.warps))


@pytest.mark.full
@pytest.mark.parametrize("group", FULL, ids=str)
def test_groups_everywhere(group: Group) -> None:
    run(group, tuple(g.kernel for g in FULL if (g.warps, g.dtype) == (group.warps, group.dtype)))
