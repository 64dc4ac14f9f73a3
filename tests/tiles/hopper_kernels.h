// Device functions around the parts of the tile library that need sm_90a, as kernels.h has them for the
// others.
#pragma once

#include "tiles/tiles.h"
#include "tiles/warpgroup.h"

namespace tests {

using namespace tiles;

extern __shared__ __align__(1024) unsigned char hopper_smem[];

/// Shared tiles one behind the other, each where a swizzle's pattern begins.
template <typename Tile> __device__ inline Tile &next_tile(int &bytes) {
  auto &tile = *reinterpret_cast<Tile *>(hopper_smem + bytes);
  bytes += (sizeof(Tile) + 1023) / 1024 * 1024;
  return tile;
}

/// out = c + a b, then a b. kA and kB are lower case where the factor comes transposed; a is 64 x k.
template <char kA, char kB, bool kInRegisters, typename T, int n, int k>
__device__ inline void warpgroup_products(const T *a, const T *b, const float *c, float *out) {
  using A = std::conditional_t<kA == 'A', SharedTile<T, 64, k>, SharedTile<T, k, 64>>;
  using B = std::conditional_t<kB == 'B', SharedTile<T, k, n>, SharedTile<T, n, k>>;
  int bytes = 0;
  auto &a_smem = next_tile<A>(bytes);
  auto &b_smem = next_tile<B>(bytes);
  warpgroup::load(a_smem, GlobalMatrix<const T, A::cols>{a, A::rows});
  warpgroup::load(b_smem, GlobalMatrix<const T, B::cols>{b, B::rows});
  fence_async_proxy();
  warpgroup::sync();

  RegTile<T, 16, k> a_rmem;
  if constexpr (kInRegisters)
    warpgroup::load(a_rmem, a_smem);
  const auto &factor = [&]() -> const auto & {
    if constexpr (kInRegisters)
      return a_rmem;
    else
      return a_smem;
  }();
  RegTile<float, 16, n> with_c, without;
  warpgroup::load(with_c, GlobalMatrix<const float, n>{c, 64});
  const auto multiply = [&](auto &dst, auto &...add) {
    if constexpr (kA == 'A' && kB == 'B')
      warpgroup::mma_AB(dst, factor, b_smem, add...);
    else if constexpr (kA == 'A')
      warpgroup::mma_ABt(dst, factor, b_smem, add...);
    else if constexpr (kB == 'B')
      warpgroup::mma_AtB(dst, factor, b_smem, add...);
    else
      warpgroup::mma_AtBt(dst, factor, b_smem, add...);
  };
  multiply(with_c, with_c);
  multiply(without);
  warpgroup::mma_wait<1>(with_c);
  warpgroup::store(GlobalMatrix<float, n>{out, 64}, with_c);
  warpgroup::mma_wait(without);
  warpgroup::store(GlobalMatrix<float, n>{out + 64 * n, 64}, without);
}

} // namespace tests
