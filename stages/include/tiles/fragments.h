// Register tiles in shared or global memory, in the order of their registers: TMA moves them as they are.
// Reading them back into the same kind of tile needs no knowledge of the layout.
#pragma once

#include "tiles/concepts.h"
#include "tiles/ptx.h"

namespace tiles {

/// Room for one warp's row-layout fp32 tile of kRows x kCols. Each lane's values lie four at a time, the 32
/// lanes side by side: an access of 512 bytes without a conflict.
template <int kRows, int kCols> struct Fragments {
  static constexpr int quads = kRows * kCols / 128; ///< of a lane
  alignas(128) float4 data[quads][32];
};

/// dst, in shared memory, = src.
template <int kRows, int kCols>
__device__ inline void store(Fragments<kRows, kCols> &dst, const RegTile<float, kRows, kCols> &src) {
#pragma unroll
  for (int quad = 0; quad < dst.quads; quad++) {
    const float2(&block)[4] = src.pairs[quad / 2 / (kCols / 16)][quad / 2 % (kCols / 16)];
    const float2 first = block[quad % 2 * 2], second = block[quad % 2 * 2 + 1];
    ptx::store_shared(&dst.data[quad][lane_id()], float4{first.x, first.y, second.x, second.y});
  }
}

/// dst = src, in global memory.
template <int kRows, int kCols>
__device__ inline void load(RegTile<float, kRows, kCols> &dst, const Fragments<kRows, kCols> &src) {
#pragma unroll
  for (int quad = 0; quad < src.quads; quad++) {
    float2(&block)[4] = dst.pairs[quad / 2 / (kCols / 16)][quad / 2 % (kCols / 16)];
    const float4 values = src.data[quad][lane_id()];
    block[quad % 2 * 2] = {values.x, values.y};
    block[quad % 2 * 2 + 1] = {values.z, values.w};
  }
}

} // namespace tiles
