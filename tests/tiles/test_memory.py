"""Every path between global memory, shared memory and registers: values, ragged edges, no bank conflicts."""

from __future__ import annotations

import pytest
import torch
from tile_programs import (
    Case,
    Unit,
    compile_ptx,
    full_cases,
    pairwise_cases,
    tile_places,
    unit_of_size,
    units,
    vector_places,
)
from tile_results import INPUTS, Result, check, flushed, matrix, size

from ladder.run.emulator import Launch, Module


def assert_no_conflicts(launch: Launch) -> None:
    """Excludes None, too: the bank model covers every access."""
    totals = launch.totals()
    assert totals["conflicts_ld"] == 0
    assert totals["conflicts_st"] == 0
    assert totals["conflicts"] == 0


def run_memory(case: Case, unit: Unit) -> None:
    t, shape = case.torch_dtype, (case.rows, case.cols)
    smem_bytes = (2 * case.rows + 16) * case.cols * t.itemsize
    for kind in INPUTS:
        a = matrix(kind, *shape, t)
        ragged_edges = {"random": {case.rows - 3}, "running": {7, case.rows}}
        for rows in ragged_edges.get(kind, {case.rows}):
            ragged = a.clone()
            ragged[rows:] = 0
            unwritten = a.clone()
            unwritten[rows:] = torch.nan
            later = torch.zeros_like(a)
            later[: case.rows - rows] = a[rows:]
            results = [
                Result("global to registers", ragged, places=tile_places(*shape, case.layout)),
                Result("global to shared to registers", ragged),
                Result("global to shared asynchronously", ragged),
                Result("registers to shared at an offset and back", a),
                Result("registers to shared to global", unwritten),
                Result("registers to global", unwritten),
                Result("global to registers from a row on", later),
            ]
            written = torch.full((len(results) * a.numel(),), torch.nan, dtype=t)
            launch = case.launch(unit, (a, written, rows), smem_bytes)
            check(results, written, f"{kind} {case} with {rows} rows")
            assert_no_conflicts(launch)
            counts = launch.totals()
            assert (counts["ldmatrix_instructions"] > 0) == (case.dtype != "f32")


def run_vectors(case: Case, unit: Unit) -> None:
    t = case.torch_dtype
    of_column, of_row = ("lines", "span") if case.layout == "row" else ("span", "lines")
    in_column, in_row = (vector_places(case.rows, of_column),), (vector_places(case.cols, of_row),)
    other_column, other_row = (vector_places(case.rows, of_row),), (vector_places(case.cols, of_column),)
    smem_bytes = 2 * (case.rows + case.cols + 16) * t.itemsize + 256
    for kind in INPUTS:
        plain = matrix(kind, 1, case.rows + case.cols, t)[0] / (32 if kind == "running" else 1)
        a, b = plain[: case.rows], plain[case.rows :]
        source = torch.cat([a[in_column].flatten(), b[in_row].flatten()])
        for length in (1, 9, case.rows):
            beyond = torch.arange(case.rows) >= length
            results = [
                Result("exp2", flushed(a.double().exp2().to(t)), 4, places=in_column),
                Result("mul", (a.float() * a.float()).to(t), places=in_column),
                Result("add -0.5", (a.float() - 0.5).to(t), places=in_column),
                Result("column in the other spread", a, places=other_column),
                Result("row in the other spread", b, places=other_row),
                Result("row in the other spread and back", b, places=in_row),
                Result("column through shared memory", a, places=in_column),
                Result("row through shared memory", b, places=in_row),
                Result("ragged column", a.masked_fill(beyond, 0), places=in_column),
                Result("ragged store", torch.full_like(a, -torch.inf).masked_fill(beyond, torch.nan)),
            ]
            written = torch.full((size(results),), torch.nan, dtype=t)
            wide = torch.full(in_column[0].shape, torch.nan)
            arguments = (source, plain, written, wide, length)
            launch = case.launch(unit, arguments, smem_bytes)
            check(results, written, f"{kind} {case} with {length} entries")
            check([Result("copy to fp32", a.float(), places=in_column)], wide, f"{kind} {case}")
            assert_no_conflicts(launch)


RUN = {"memory": run_memory, "vectors": run_vectors}
# sm_90 stores 16-bit tiles with stmatrix; everything else is the same on all architectures.
PAIRWISE = [
    *pairwise_cases("memory"),
    *pairwise_cases("vectors"),
    *[case for case in pairwise_cases("memory", ("f16", "bf16"), "sm_90") if not case.optimised],
]
FULL = [*full_cases("memory"), *full_cases("vectors"), *full_cases("memory", ("f16", "bf16"), "sm_90")]
PAIRWISE_UNITS = units(PAIRWISE)


@pytest.mark.parametrize("case", PAIRWISE, ids=str)
def test_values_and_conflicts(case: Case) -> None:
    RUN[case.family](case, PAIRWISE_UNITS[case.together])


@pytest.mark.full
@pytest.mark.parametrize("case", FULL, ids=str)
def test_values_and_conflicts_everywhere(case: Case) -> None:
    RUN[case.family](case, unit_of_size(case, FULL))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_stmatrix_where_there_is_one(arch: str) -> None:
    case = Case("memory", "f16", "row", 32, 64, arch)
    a = torch.zeros(32, 64, dtype=torch.half)
    written = torch.empty(7 * a.numel(), dtype=torch.half)
    smem_bytes = 80 * 64 * 2
    launch = case.launch((case.kernel,), (a, written, 32), smem_bytes)
    assert launch.instructions()["ptx"].str.startswith("stmatrix").any() == (arch == "sm_90")


def test_a_conflict_would_be_counted() -> None:
    """The same tile without its swizzle: 8 rows of 128 bytes, all in the same banks."""
    source = """
    #include "tiles/tiles.h"
    extern "C" __global__ void k(unsigned *out) {
      __shared__ __half tile[64 * 64];
      uint32_t quarters[4];
      const __half *row = tile + threadIdx.x % 16 * 64 + threadIdx.x / 16 * 8;
      ladder::ptx::ldmatrix_x4(quarters, ladder::ptx::shared_address(row));
      out[threadIdx.x] = quarters[0];
    }
    """
    out = torch.zeros(32, dtype=torch.int32)
    launch = Module(compile_ptx(source, "sm_80"), "sm_80").launch("k", 1, 32, (out,))
    assert launch.totals()["conflicts"] == 4 * 7
