// Register tiles in shared memory, in the order of GlobalFragments, to which TMA adds them.
#pragma once

#include "tiles/fragments_global.h"
#include "tiles/tma.h"

namespace tiles {

/// Storage for one row-layout fp32 tile of kRows x kCols, in the order of GlobalFragments<kRows, kCols, 4>: a
/// warp stores 512 bytes per instruction, without bank conflicts.
template <int kRows, int kCols> struct SharedFragments {
  static constexpr int size = kRows * kCols; ///< in floats
  alignas(128) float data[size];
};

template <int kRows, int kCols>
__device__ inline void store(SharedFragments<kRows, kCols> &dst, const RegTile<float, kRows, kCols> &src) {
  detail::for_each_fragment<4>(src.pairs, dst.data,
                               [](const float2 &first, const float2 &second, float *place) {
                                 ptx::store_shared(place, float4{first.x, first.y, second.x, second.y});
                               });
}

namespace tma {

/// Issues dst += src for consecutive tiles, atomically per value; dst is the first of them. Before it, the
/// threads that wrote src execute fence_async_proxy and a barrier. After it, store_commit() and
/// store_wait_read().
template <int kRows, int kCols, int kTiles>
__device__ inline void add_async(const GlobalFragments<kRows, kCols, 4> &dst,
                                 const SharedFragments<kRows, kCols> (&src)[kTiles]) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(dst.data)),
               "r"(ptx::shared_address(src[0].data)), "n"(sizeof(src))
               : "memory");
}

/// Waits until this thread's committed additions are complete, and visible to its later release: their
/// completion implies a fence between the async proxy and the generic one (PTX manual, "Async proxy").
__device__ inline void add_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Orders additions that another block has completed and this thread has acquired before those that it
/// issues. Between blocks the async proxy's accesses are ordered only through proxy fences (PTX manual,
/// "Causality order").
__device__ inline void fence_additions() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

} // namespace tma

} // namespace tiles
