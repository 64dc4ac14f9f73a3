// Scopes: one warp calls the functions outside a group. N warps call those of group<N> together.
#pragma once

#include "tiles/maps.h"
#include "tiles/memory_global.h"

namespace tiles {

/// kWarps consecutive warps of a block, from a multiple of kWarps on.
template <int kWarps> struct group {
  static constexpr int warps = kWarps, threads = 32 * kWarps;

  /// The caller's number. A small group, whose lanes hold large tiles, rereads it at every call, so that
  /// indices computed from it take no registers in between. In a large group that costs more than it saves.
  __device__ static int thread() { return (kWarps <= 4 ? thread_index() : threadIdx.x) % threads; }
  __device__ static int warp() { return uniform(threadIdx.x / 32 % warps); }

  /// Barrier of the group's warps. Groups that wait at the same time use different named barriers; 0 is that
  /// of __syncthreads.
  __device__ static void sync(int barrier = 0) {
    if constexpr (kWarps == 1)
      __syncwarp();
    else
      ptx::barrier(barrier, threads);
  }

  // Between shared and global memory: the threads copy 16 bytes each at a time. The tile is complete after
  // sync().
  template <SharedMemoryTile D, AnyGlobalMatrix M>
  __device__ static void load(D &dst, const M &src, int first_row = 0) {
    if constexpr (detail::require_row_of<D, M>())
      detail::load_chunks<threads>(dst, src, first_row, thread());
  }
  /// Issues the copies (cp.async). Then async_commit(), and later async_wait<n>().
  template <SharedMemoryTile D, AnyGlobalMatrix M>
  __device__ static void load_async(D &dst, const M &src, int first_row = 0) {
    if constexpr (detail::require_row_of<D, M>())
      detail::load_chunks_async<threads>(dst, src, first_row, thread());
  }
  template <SharedMemoryVector D, typename T>
  __device__ static void load_async(D &dst, const GlobalVec<T> &src, int first = 0) {
    detail::load_vector_async<threads>(dst, src, first, thread());
  }
  template <SharedMemoryTile D, typename T>
  __device__ static void load_async(D &dst, const WideMatrix<T> &src, int first_row, int first_col) {
    detail::load_chunks_async<threads>(dst, src, first_row, first_col, thread());
  }
  /// Waits for all copies that the group's threads have committed, except for the last kPending copy groups
  /// of each; then a barrier of the group.
  template <int kPending = 0> __device__ static void async_wait(int barrier = 0) {
    tiles::async_wait<kPending>();
    sync(barrier);
  }
  template <AnyGlobalMatrix M, SharedMemoryTile S>
  __device__ static void store(const M &dst, const S &src, int first_row = 0) {
    if constexpr (detail::require_row_of<S, M>())
      detail::store_chunks<threads>(dst, src, first_row, thread());
  }

  // Between shared memory and registers: the register tile of warp w has the rows from w * rows on.
  template <RegisterTile D, SharedMemoryTile S> __device__ static void load(D &dst, const S &src) {
    static_assert(D::rows * warps == S::rows,
                  "group: expected a shared tile with as many rows as the warps' register tiles together");
    tiles::load(dst, src, warp() * D::rows);
  }
  template <SharedMemoryTile D, RegisterTile S> __device__ static void store(D &dst, const S &src) {
    static_assert(S::rows * warps == D::rows,
                  "group: expected a shared tile with as many rows as the warps' register tiles together");
    tiles::store(dst, src, warp() * S::rows);
  }

  // The same between global memory and registers, from row first_row of the matrix on.
  template <RegisterTile D, AnyGlobalMatrix M>
  __device__ static void load(D &dst, const M &src, int first_row = 0) {
    tiles::load(dst, src, first_row + warp() * D::rows);
  }
  template <AnyGlobalMatrix M, RegisterTile S>
  __device__ static void store(const M &dst, const S &src, int first_row = 0) {
    tiles::store(dst, src, first_row + warp() * S::rows);
  }
  template <RegisterVector D, typename T>
  __device__ static void load(D &dst, const GlobalVec<T> &src, int first = 0) {
    tiles::load(dst, src, first + warp() * D::length);
  }
  template <typename T, RegisterVector S>
  __device__ static void store(const GlobalVec<T> &dst, const S &src, int first = 0) {
    tiles::store(dst, src, first + warp() * S::length);
  }

  /// In the first warp dst becomes the sum of all warps' dst; in the others it does not change. `scratch` may
  /// be reused after the next sync.
  template <RegisterTile D, SharedMemoryTile W>
  __device__ static void sum_to_first(D &dst, W (&scratch)[kWarps]) {
    tiles::store(scratch[warp()], dst);
    sync();
    if (warp() != 0)
      return;
    D part;
#pragma unroll
    for (int w = 1; w < warps; w++) {
      tiles::load(part, scratch[w]);
      add(dst, dst, part);
    }
  }
};

} // namespace tiles
