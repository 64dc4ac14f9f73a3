// Register tiles in global memory, in the order of their registers: for data that only the same kind of tile
// reads back.
#pragma once

#include "tiles/concepts.h"
#include "tiles/ptx.h"

namespace tiles {

/// Storage for one row-layout fp32 tile of kRows x kCols, at a multiple of 128 bytes. kSideBySide of a lane's
/// values are adjacent, and those of the 32 lanes are consecutive: an instruction adds 128 bytes with
/// kSideBySide = 1, and 512 with 4, which needs sm_90.
template <int kRows, int kCols, int kSideBySide = 1>
  requires(kSideBySide == 1 || kSideBySide == 4)
struct GlobalFragments {
  static constexpr int size = kRows * kCols; ///< in floats
  float *data;
};

namespace detail {

/// Calls f(pair, next pair, address of their first value) for the whole tile. The other three values are
/// adjacent, or 32 floats apart.
template <int kSideBySide, typename Pairs, typename F>
__device__ inline void for_each_fragment(Pairs &pairs, float *data, F f) {
  float *next = data + kSideBySide * lane_id();
#pragma unroll
  for (auto &line : pairs)
#pragma unroll
    for (auto &block : line)
#pragma unroll
      for (int pair = 0; pair < 4; pair += 2) {
        f(block[pair], block[pair + 1], next);
        next += 4 * 32;
      }
}

} // namespace detail

/// dst += src, atomically per value, so that several warps may add at once. The order of the additions, and
/// with it the last bits, is then not determined.
template <int kRows, int kCols, int kSideBySide>
__device__ inline void atomic_add(const GlobalFragments<kRows, kCols, kSideBySide> &dst,
                                  const RegTile<float, kRows, kCols> &src) {
  detail::for_each_fragment<kSideBySide>(
      src.pairs, dst.data, [](const float2 &first, const float2 &second, float *place) {
        if constexpr (kSideBySide == 4) {
          ptx::atomic_add(place, float4{first.x, first.y, second.x, second.y});
        } else {
          ptx::atomic_add(place, first.x);
          ptx::atomic_add(place + 32, first.y);
          ptx::atomic_add(place + 64, second.x);
          ptx::atomic_add(place + 96, second.y);
        }
      });
}

template <int kRows, int kCols, int kSideBySide>
__device__ inline void load(RegTile<float, kRows, kCols> &dst,
                            const GlobalFragments<kRows, kCols, kSideBySide> &src) {
  detail::for_each_fragment<kSideBySide>(dst.pairs, src.data,
                                         [](float2 &first, float2 &second, const float *place) {
                                           if constexpr (kSideBySide == 4) {
                                             const float4 values = *reinterpret_cast<const float4 *>(place);
                                             first = {values.x, values.y};
                                             second = {values.z, values.w};
                                           } else {
                                             first = {place[0], place[32]};
                                             second = {place[64], place[96]};
                                           }
                                         });
}

/// dst = 0.
template <int kRows, int kCols> __device__ inline void zero(const GlobalFragments<kRows, kCols, 4> &dst) {
  auto *next = reinterpret_cast<float4 *>(dst.data) + lane_id();
#pragma unroll
  for (int i = 0; i < kRows * kCols / (4 * 32); i++, next += 32)
    *next = {};
}

} // namespace tiles
