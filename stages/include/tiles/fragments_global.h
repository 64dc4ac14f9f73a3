// Register tiles in global memory, in the order of their registers: 128 bytes hold one value of all 32 lanes.
// Reading them back into the same kind of tile needs no knowledge of the layout.
#pragma once

#include "tiles/concepts.h"
#include "tiles/ptx.h"

namespace tiles {

/// Room for one row-layout fp32 tile of kRows x kCols, at a multiple of 128 bytes.
template <int kRows, int kCols> struct GlobalFragments {
  static constexpr int size = kRows * kCols; ///< in floats
  float *data;
};

namespace detail {

/// Calls f(pair of the tile, address of its first value); the second value is 32 floats further.
template <typename Pairs, typename F>
__device__ inline void for_each_fragment(Pairs &pairs, float *data, F f) {
  float *next = data + lane_id();
#pragma unroll
  for (auto &line : pairs)
#pragma unroll
    for (auto &block : line)
#pragma unroll
      for (auto &pair : block) {
        f(pair, next);
        next += 64;
      }
}

} // namespace detail

/// dst += src, atomically, value by value, so that several warps may add at once; the order of the additions,
/// and with it the last bits, is then open.
template <int kRows, int kCols>
__device__ inline void atomic_add(const GlobalFragments<kRows, kCols> &dst,
                                  const RegTile<float, kRows, kCols> &src) {
  detail::for_each_fragment(src.pairs, dst.data, [](const float2 &pair, float *place) {
    ptx::atomic_add(place, pair.x);
    ptx::atomic_add(place + 32, pair.y);
  });
}

template <int kRows, int kCols>
__device__ inline void load(RegTile<float, kRows, kCols> &dst, const GlobalFragments<kRows, kCols> &src) {
  detail::for_each_fragment(dst.pairs, src.data,
                            [](float2 &pair, const float *place) { pair = {place[0], place[32]}; });
}

} // namespace tiles
