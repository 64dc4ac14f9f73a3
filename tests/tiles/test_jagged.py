"""Features for jagged problems: strided rows, tiles of wide matrices, bit masks, sums over warps."""

from __future__ import annotations

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


def run(source: str, arguments: tuple[object, ...], *, warps: int = 1, smem_bytes: int = 0) -> Launch:
    module = Module(compile_ptx(PRELUDE + source, "sm_80"), "sm_80")
    return module.launch("k", 1, 32 * warps, arguments, smem_bytes)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_rows_at_a_distance(dtype: str) -> None:
    """Moves rows through registers and by cp.async; rows past the end are read as zeros and not written."""
    source = f"""
    using T = {CPP_TYPES[dtype]};
    extern "C" __global__ void k(const T *in, T *out, int rows, int stride) {{
      const StridedMatrix<const T, 64> from{{in, rows, stride}};
      auto &tile = SharedAllocator(smem).allocate<SharedTile<T, 48, 64>>();
      RegTile<T, 48, 64> x;
      load(x, from, 16);
      store(StridedMatrix<T, 64>{{out, 40, 72}}, x);
      load(tile, from, 16);
      __syncwarp();
      store(StridedMatrix<T, 64>{{out + 40 * 72, 40, 72}}, tile);
      __syncwarp();
      load_async(tile, from, 16);
      async_commit();
      async_wait();
      __syncwarp();
      store(StridedMatrix<T, 64>{{out + 80 * 72, 40, 72}}, tile);
    }}
    """
    x = torch.randn(50, 80, generator=torch.Generator().manual_seed(0)).to(TORCH_DTYPES[dtype])
    out = torch.full((3, 40, 72), torch.nan, dtype=x.dtype)
    run(source, (x, out, 50, 80), smem_bytes=48 * 64 * 2)
    expected = torch.zeros(40, 64, dtype=x.dtype)
    expected[:34] = x[16:, :64]
    for way in range(3):
        assert torch.equal(out[way, :, :64], expected)
        assert out[way, :, 64:].isnan().all()


def test_tiles_of_a_wide_matrix() -> None:
    source = """
    extern "C" __global__ void k(const __half *in, __half *out, int row, int col) {
      auto &tile = SharedAllocator(smem).allocate<SharedTile<__half, 32, 64>>();
      load_async(tile, WideMatrix<const __half>{in, 40, 88, 96}, row, col);
      async_commit();
      async_wait();
      __syncwarp();
      store(GlobalMatrix<__half, 64>{out, 32}, tile);
    }
    """
    x = torch.randn(40, 96, generator=torch.Generator().manual_seed(0)).half()
    for row, col in ((0, 0), (7, 24), (20, 64), (40, 88)):
        out = torch.full((32, 64), torch.nan, dtype=torch.half)
        run(source, (x, out, row, col), smem_bytes=32 * 64 * 2)
        expected = torch.zeros(32, 64, dtype=torch.half)
        there = x[row : row + 32, col : min(col + 64, 88)]
        expected[: there.shape[0], : there.shape[1]] = there
        assert torch.equal(out, expected), (row, col)


def test_masks_by_bits() -> None:
    source = """
    extern "C" __global__ void k(const unsigned long long *bits, float *out) {
      RegTile<float, 32, 48> x;
      zero(x);
      add(x, x, 1.f);
      keep_bits(x, x, [&](int r) { return bits[r]; }, -2.f);
      store(GlobalMatrix<float, 48>{out, 32}, x);
    }
    """
    keep = torch.rand(32, 64, generator=torch.Generator().manual_seed(0)) < 0.5
    bits = [sum(int(b) << i for i, b in enumerate(row.tolist())) for row in keep]
    words = torch.tensor([b - (1 << 64) if b >> 63 else b for b in bits], dtype=torch.int64)
    out = torch.full((32, 48), torch.nan)
    run(source, (words, out))
    assert torch.equal(out, torch.where(keep[:, :48], 1.0, -2.0))


def test_masks_by_each_rows_end() -> None:
    source = """
    extern "C" __global__ void k(const int *ends, float *out) {
      RegTile<float, 32, 80> x;
      zero(x);
      add(x, x, 1.f);
      keep_before(x, x, [&](int r) { return ends[r]; }, -2.f);
      store(GlobalMatrix<float, 80>{out, 32}, x);
    }
    """
    ends = torch.tensor([-(2**31) + 8, -1, 0, 1, 2, 7, 8, 9, 79, 80, 81, 2**31 - 1, *range(20, 60, 2)])
    out = torch.full((32, 80), torch.nan)
    run(source, (ends.int(), out))
    assert torch.equal(out, torch.where(torch.arange(80) < ends[:, None], 1.0, -2.0))


@pytest.mark.parametrize("cols", [80, 128, 176])
def test_masks_by_words_of_64_bits(cols: int) -> None:
    words = -(-cols // 64)
    source = f"""
    extern "C" __global__ void k(const unsigned long long *bits, float *out) {{
      RegTile<float, 16, {cols}> x;
      zero(x);
      add(x, x, 1.f);
      const auto row = [&](int r) {{
        return [=](int first) {{ return bits[{words} * r + first / 64]; }};
      }};
      keep_bits(x, x, row, -2.f);
      store(GlobalMatrix<float, {cols}>{{out, 16}}, x);
    }}
    """
    keep = torch.rand(16, words, 64, generator=torch.Generator().manual_seed(0)) < 0.5
    bits = [sum(int(b) << i for i, b in enumerate(word)) for word in keep.flatten(0, 1).tolist()]
    given = torch.tensor([b - (1 << 64) if b >> 63 else b for b in bits], dtype=torch.int64)
    out = torch.full((16, cols), torch.nan)
    run(source, (given, out))
    assert torch.equal(out, torch.where(keep.flatten(1)[:, :cols], 1.0, -2.0))


def test_silu_takes_one_special_function_a_value() -> None:
    source = """
    extern "C" __global__ void k(const float *in, float *out) {
      RegTile<float, 16, 16> x;
      load(x, GlobalMatrix<const float, 16>{in, 16});
      silu(x, x, -0.5f);
      store(GlobalMatrix<float, 16>{out, 16}, x);
    }
    """
    x = torch.linspace(-60, 60, 256).view(16, 16)
    out = torch.full_like(x, torch.nan)
    launch = run(source, (x, out))
    instructions = launch.instructions()
    special = instructions[instructions["ptx"].str.contains("approx")]
    assert int(special["executed"].sum()) == 256 // 32
    expected = torch.nn.functional.silu(-0.5 * x.double())
    assert torch.allclose(out.double(), expected, rtol=2.0**-11, atol=2.0**-20)


def test_sum_over_the_warps_of_a_group() -> None:
    source = """
    extern "C" __global__ void k(const float *in, float *out) {
      using block = group<4>;
      auto &scratch = SharedAllocator(smem).allocate<SharedTile<float, 16, 32>, 4>();
      RegTile<float, 16, 32> x;
      block::load(x, GlobalMatrix<const float, 32>{in, 64});
      block::sum_to_first(x, scratch);
      block::store(GlobalMatrix<float, 32>{out, 64}, x);
    }
    """
    x = torch.arange(64 * 32, dtype=torch.float).view(64, 32)
    out = torch.full_like(x, torch.nan)
    totals = run(source, (x, out), warps=4, smem_bytes=4 * 16 * 32 * 4).totals()
    assert torch.equal(out[:16], x.view(4, 16, 32).sum(0))
    assert torch.equal(out[16:], x[16:])
    assert totals["conflicts"] == 0
