"""Parts of shared tiles, fragments in global memory, and asynchronous copies of vectors."""

from __future__ import annotations

import itertools

import pytest
import torch
from tile_programs import CPP_TYPES, compile_ptx

from ladder.operations import TORCH_DTYPES
from ladder.run.emulator import Launch, Module

PRELUDE = """
#include "tiles/tiles.h"
using namespace tiles;
extern __shared__ __align__(128) unsigned char smem[];
"""


def run(
    source: str,
    arguments: tuple[torch.Tensor | int, ...],
    *,
    blocks: int = 1,
    smem_bytes: int = 0,
    arch: str = "sm_80",
) -> Launch:
    return Module(compile_ptx(PRELUDE + source, arch), arch).launch("k", blocks, 32, arguments, smem_bytes)


@pytest.mark.parametrize("cols", [32, 64, 128])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_of_parts(dtype: str, cols: int) -> None:
    """a^T b with a and b parts of one tile, at every position: both factors are read transposed."""
    source = f"""
    using T = {CPP_TYPES[dtype]};
    extern "C" __global__ void k(const T *in, float *out) {{
      auto &tile = SharedAllocator(smem).allocate<SharedTile<T, 64, {cols}>>();
      load(tile, GlobalMatrix<const T, {cols}>{{in, 64}});
      __syncwarp();
      for (int row = 0; row < 64; row += 32)
        for (int a = 0; a < {cols}; a += 16)
          for (int b = 0; b < {cols}; b += 32) {{
            RegTile<float, 16, 32> sum;
            zero(sum);
            mma_AtB(sum, part<32, 16>(tile, row, a), part<32, 32>(tile, row, b), sum);
            store(GlobalMatrix<float, {cols}>{{out + row / 32 * {cols * cols}, {cols}}}, sum, a, b);
          }}
    }}
    """
    x = torch.randn(64, cols, generator=torch.Generator().manual_seed(0)).to(TORCH_DTYPES[dtype])
    out = torch.full((2, cols, cols), torch.nan)
    totals = run(source, (x, out), smem_bytes=64 * cols * 2).totals()
    halves = x.double().view(2, 32, cols)
    assert torch.allclose(out.double(), halves.mT @ halves, rtol=0, atol=1e-4)
    assert totals["conflicts"] == 0


def test_loads_and_stores_of_parts() -> None:
    """Loads, negates and stores each part; the elements between parts stay unchanged."""
    source = """
    extern "C" __global__ void k(const __half *in, __half *out) {
      auto &tile = SharedAllocator(smem).allocate<SharedTile<__half, 48, 128>>();
      load(tile, GlobalMatrix<const __half, 128>{in, 48});
      __syncwarp();
      for (int row = 16; row < 48; row += 16)
        for (int col = 32; col < 128; col += 64) {
          auto piece = part<16, 32>(tile, row, col);
          RegTile<__half, 16, 32> x;
          load(x, piece);
          mul(x, x, -1.f);
          store(piece, x);
        }
      __syncwarp();
      store(GlobalMatrix<__half, 128>{out, 48}, tile);
    }
    """
    x = torch.arange(48 * 128, dtype=torch.half).view(48, 128) % 2047
    out = torch.full_like(x, torch.nan)
    totals = run(source, (x, out), smem_bytes=48 * 128 * 2).totals()
    expected = x.clone()
    for row, col in itertools.product((16, 32), (32, 96)):
        expected[row : row + 16, col : col + 32] *= -1
    assert torch.equal(out, expected)
    assert totals["conflicts"] == 0


@pytest.mark.parametrize(("side_by_side", "arch"), [(1, "sm_80"), (4, "sm_90")])
@pytest.mark.parametrize(("rows", "cols"), [(16, 16), (32, 64)])
def test_sums_in_the_order_of_registers(rows: int, cols: int, side_by_side: int, arch: str) -> None:
    """Three blocks add, and loading gives the sum; each instruction adds 32 or 128 contiguous values."""
    fragments = f"GlobalFragments<{rows}, {cols}, {side_by_side}>"
    add = f"""
    extern "C" __global__ void k(const float *in, float *sums) {{
      RegTile<float, {rows}, {cols}> x;
      load(x, GlobalMatrix<const float, {cols}>{{in, {rows}}}, 0);
      mul(x, x, float(blockIdx.x + 1));
      atomic_add({fragments}{{sums}}, x);
    }}
    """
    read = f"""
    extern "C" __global__ void k(float *sums, float *out) {{
      RegTile<float, {rows}, {cols}> x;
      load(x, {fragments}{{sums}});
      store(GlobalMatrix<float, {cols}>{{out, {rows}}}, x);
    }}
    """
    x = torch.arange(rows * cols, dtype=torch.float).view(rows, cols)
    sums, out = torch.zeros(rows * cols), torch.full_like(x, torch.nan)
    launch = run(add, (x, sums), blocks=3, arch=arch)
    instructions = launch.instructions()
    reds = instructions[instructions["ptx"].str.startswith("red.")]
    assert int(reds["executed"].sum()) == 3 * rows * cols // (32 * side_by_side)
    run(read, (sums, out), arch=arch)
    assert torch.equal(out, 6 * x)


@pytest.mark.parametrize(("length", "first"), [(64, 0), (48, 0), (48, 16), (64, 60)])
def test_vectors_come_asynchronously(length: int, first: int) -> None:
    """Of 48 entries from `first` on, those past the end become 0; a lane loads two neighbours at a time."""
    source = """
    extern "C" __global__ void k(const float *in, float *out, int length, int first) {
      auto &vec_smem = SharedAllocator(smem).allocate<SharedVec<float, 48>>();
      RegTile<float, 16, 48>::RowVec vec;
      load_async(vec_smem, GlobalVec<const float>{in, length}, first);
      async_commit();
      async_wait();
      __syncwarp();
      load(vec, vec_smem);
      store(GlobalVec<float>{out, 48}, vec);
    }
    """
    x = torch.arange(1, 65, dtype=torch.float)
    out = torch.full((48,), torch.nan)
    totals = run(source, (x, out, length, first), smem_bytes=256).totals()
    expected = torch.zeros(48)
    there = x[first:length][:48]
    expected[: len(there)] = there
    assert torch.equal(out, expected)
    assert totals["conflicts"] == 0
    assert totals["shared_load_instructions"] == 3 * 2
