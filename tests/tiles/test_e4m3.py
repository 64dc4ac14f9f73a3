"""8-bit tiles: rounding to fragments, products of a warpgroup, and of a warp in f16, against torch."""

from __future__ import annotations

import pytest
import torch
from tile_programs import compile_ptx

from ladder.run.emulator import Launch, Module

PRELUDE = """
#include "tiles/tiles.h"
#include "tiles/warpgroup.h"
using namespace tiles;
extern __shared__ __align__(1024) unsigned char smem[];
template <typename Tile> __device__ Tile &fill_tile(int at, const unsigned char *src, bool in_order) {
  auto &tile = *reinterpret_cast<Tile *>(smem + at);
  for (int i = threadIdx.x; i < Tile::rows * Tile::cols; i += blockDim.x) {
    const int col = i % Tile::cols, place = in_order ? col : Fragments8<Tile::cols>::place_of(col);
    *tile.at(i / Tile::cols, place) = {src[i]};
  }
  return tile;
}
"""


SIZES = (32, 64, 128, 256)
PRODUCT = """
template <int n, int k>
__device__ void product(const unsigned char *a, const float *a_32, const unsigned char *b, float *out) {
  const auto &a_smem = fill_tile<SharedTile<E4M3, 64, k>>(0, a, true);
  const auto &b_smem = fill_tile<SharedTile<E4M3, n, k>>(sizeof a_smem, b, true);
  const auto &b_placed = fill_tile<SharedTile<E4M3, n, k>>(sizeof a_smem + sizeof b_smem, b, false);
  fence_async_proxy();
  warpgroup::sync();
  RegTile<float, 16, k> a_rmem;
  warpgroup::load(a_rmem, GlobalMatrix<const float, k>{a_32, 64});
  Fragments8<k> fragments;
  copy(fragments, a_rmem);
  RegTile<float, 16, n> sum;
  warpgroup::mma_ABt(sum, a_smem, b_smem);
  warpgroup::mma_ABt(sum, fragments, b_placed, sum);
  warpgroup::mma_wait(sum);
  warpgroup::store(GlobalMatrix<float, n>{out, 64}, sum);
}
"""
#: All sizes in one source: the headers take longer to compile than a product.
PRODUCTS = PRODUCT + "".join(
    f"""
    extern "C" __global__ void
    k_{n}_{k}(const unsigned char *a, const float *a_32, const unsigned char *b, float *out) {{
      product<{n}, {k}>(a, a_32, b, out);
    }}
    """
    for n in SIZES
    for k in SIZES
)


def run(source: str, kernel: str, arguments: tuple[object, ...], smem_bytes: int) -> Launch:
    module = Module(compile_ptx(PRELUDE + source, "sm_90a"), "sm_90a")
    return module.launch(kernel, 1, 128, arguments, smem_bytes)


def whole(*shape: int, seed: int) -> torch.Tensor:
    """Whole numbers, whose sums are exact."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


def in_bytes(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).view(torch.uint8)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("k", SIZES)
def test_products(n: int, k: int) -> None:
    """Rows of 32, 64 and 128 bytes and two column blocks; the first factor in shared memory, in registers."""
    a, b = whole(64, k, seed=0), whole(n, k, seed=1)
    out = torch.full((64, n), torch.nan)
    launch = run(PRODUCTS, f"k_{n}_{k}", (in_bytes(a), a, in_bytes(b), out), (64 + 2 * n) * k)
    assert torch.equal(out, 2 * a @ b.T)
    assert launch.totals()["wgmma_instructions"] == 2 * 4 * k // 32


def test_fragments_are_rounded_to_nearest_and_end_at_448() -> None:
    """A product with an identity shows them element by element."""
    source = """
    extern "C" __global__ void k(const float *x, const unsigned char *identity, float *out) {
      const auto &placed = fill_tile<SharedTile<E4M3, 32, 32>>(0, identity, false);
      fence_async_proxy();
      warpgroup::sync();
      RegTile<float, 16, 32> x_rmem, product;
      warpgroup::load(x_rmem, GlobalMatrix<const float, 32>{x, 64});
      Fragments8<32> fragments;
      copy(fragments, x_rmem);
      warpgroup::mma_ABt(product, fragments, placed);
      warpgroup::mma_wait(product);
      warpgroup::store(GlobalMatrix<float, 32>{out, 64}, product);
    }
    """
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, 4, 32)
    out = torch.full((64, 32), torch.nan)
    run(source, "k", (x, in_bytes(torch.eye(32)), out), 32 * 32)
    assert torch.equal(out, x.clamp(-448, 448).to(torch.float8_e4m3fn).float())
    assert float(x.abs().max()) > 448


OPERANDS = """
#include "tiles/e4m3.h"
using namespace tiles;
extern __shared__ __align__(1024) unsigned char smem[];
template <int d> __device__ auto &fill(int at, const unsigned char *src) {
  auto &tiles = *reinterpret_cast<SharedTile<e4m3::Two, 16, d / 2>(*)[2]>(smem + at);
  for (int i = threadIdx.x; i < 16 * d; i += 32)
    *tiles[i / (8 * d)].at(i / (d / 2) % 16, i % (d / 2)) = reinterpret_cast<const e4m3::Two *>(src)[i];
  __syncwarp();
  return tiles;
}
template <int d> __device__ void products(const __half *q, const unsigned char *k, const unsigned char *v,
                                          float *s_out, float *o_out) {
  const auto &k_smem = fill<d>(0, k), &v_smem = fill<d>(32 * d, v);
  RegTile<__half, 16, d> q_rmem;
  RegTile<float, 16, 32> s;
  RegTile<__half, 16, 32> p;
  RegTile<float, 16, d> o;
  e4m3::load_ordered(q_rmem, GlobalMatrix<const __half, d>{q, 16});
  e4m3::mma_ABt(s, q_rmem, k_smem, 0);
  store(GlobalMatrix<float, 32>{s_out, 16}, s);
  copy(p, s);
  zero(o);
  e4m3::mma_AB(o, p, v_smem, 0);
  e4m3::store_ordered(GlobalMatrix<float, d>{o_out, 16}, o);
}
""" + "".join(
    f"""
    extern "C" __global__ void k_{d}(const __half *q, const unsigned char *k, const unsigned char *v,
                                     float *s, float *o) {{
      products<{d}>(q, k, v, s, o);
    }}
    """
    for d in (64, 128)
)


@pytest.mark.parametrize("d", [64, 128])
def test_products_of_a_warp(d: int) -> None:
    """S = Q K^T and O = S V: two tiles of 16 rows in e4m3, converted to f16 in registers."""
    q, k, v = whole(16, d, seed=0), whole(32, d, seed=1), whole(32, d, seed=2)
    s, o = torch.full((16, 32), torch.nan), torch.full((16, d), torch.nan)
    module = Module(compile_ptx(OPERANDS, "sm_89"), "sm_89")
    launch = module.launch(f"k_{d}", 1, 32, (q.half(), in_bytes(k), in_bytes(v), s, o), 64 * d)
    assert torch.equal(s, q @ k.T)
    assert torch.equal(o, s @ v)
    assert launch.totals()["mma_instructions"] == d // 2
