// Scopes: functions outside a group are one warp's; those of group<N> are N warps' together, and all N call
// them.
#pragma once

#include "tiles/memory_global.h"
#include "tiles/reductions.h"

namespace tiles {

/// kWarps neighbouring warps of a block, from a multiple of kWarps on. (group<4> is what Hopper calls a
/// warpgroup: the scope of its wgmma.)
template <int kWarps> struct group {
  static constexpr int warps = kWarps, threads = 32 * kWarps;

  /// In a small group, whose lanes hold large tiles, read anew at every call, so that nothing that follows
  /// from it takes registers in between. In a large one the reading would cost more than it saves.
  __device__ static int thread() { return (kWarps <= 4 ? thread_index() : threadIdx.x) % threads; }
  __device__ static int warp() { return uniform(threadIdx.x / 32 % warps); }

  /// Waits for all warps of the group. `barrier` tells groups apart that wait at the same time; 0 is the one
  /// of __syncthreads.
  __device__ static void sync(int barrier = 0) {
    if constexpr (kWarps == 1)
      __syncwarp();
    else
      ptx::barrier(barrier, threads);
  }

  // Shared and global memory: the warps bring or take 16 bytes a thread in turn. Everyone's part is there
  // after sync().
  template <SharedMemoryTile D, AnyGlobalMatrix M>
  __device__ static void load(D &dst, const M &src, int first_row = 0) {
    if constexpr (detail::require_row_of<D, M>())
      detail::load_chunks<threads>(dst, src, first_row, thread());
  }
  /// Without waiting: async_commit(), later async_wait<n>().
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
  /// Waits for what all warps of the group have committed, but for each one's last kPending; and for the
  /// warps.
  template <int kPending = 0> __device__ static void async_wait(int barrier = 0) {
    tiles::async_wait<kPending>();
    sync(barrier);
  }
  template <AnyGlobalMatrix M, SharedMemoryTile S>
  __device__ static void store(const M &dst, const S &src, int first_row = 0) {
    if constexpr (detail::require_row_of<S, M>())
      detail::store_chunks<threads>(dst, src, first_row, thread());
  }

  // Shared memory and registers: warp w has the rows from w times its tile's height on.
  template <RegisterTile D, SharedMemoryTile S> __device__ static void load(D &dst, const S &src) {
    static_assert(D::rows * warps == S::rows,
                  "group: wanted a shared tile with as many rows as the warps' register tiles together");
    tiles::load(dst, src, warp() * D::rows);
  }
  template <SharedMemoryTile D, RegisterTile S> __device__ static void store(D &dst, const S &src) {
    static_assert(S::rows * warps == D::rows,
                  "group: wanted a shared tile with as many rows as the warps' register tiles together");
    tiles::store(dst, src, warp() * S::rows);
  }

  // Global memory and registers, likewise, from row first_row of the matrix on.
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

  // Reductions of the tiles that the warps hold above one another: a value for each column, the same in all
  // warps. `scratch` holds kWarps vectors; it is free again when all warps have passed the next sync.
  template <RegisterVector V, RegisterTile S, SharedMemoryVector W>
  __device__ static void col_max(V &dst, const S &src, W &scratch, int barrier = 0) {
    reduce<detail::Max>(dst, src, scratch, barrier);
  }
  template <RegisterVector V, RegisterTile S, SharedMemoryVector W>
  __device__ static void col_min(V &dst, const S &src, W &scratch, int barrier = 0) {
    reduce<detail::Min>(dst, src, scratch, barrier);
  }
  template <RegisterVector V, RegisterTile S, SharedMemoryVector W>
  __device__ static void col_sum(V &dst, const S &src, W &scratch, int barrier = 0) {
    reduce<detail::Add>(dst, src, scratch, barrier);
  }

  /// In the first warp: dst = the sum of all warps' dst. The others keep theirs. `scratch` is free again
  /// after the next sync.
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

private:
  template <typename Op, RegisterVector V, RegisterTile S, SharedMemoryVector W>
  __device__ static void reduce(V &dst, const S &src, W &scratch, int barrier) {
    static_assert(W::length == warps * V::length, "group: wanted a scratch vector of warps * cols values");
    V own;
    detail::reduce_cols<Op>(own, src);
    tiles::store(scratch, own, warp() * V::length);
    sync(barrier);
    tiles::load(dst, scratch, 0);
#pragma unroll
    for (int w = 1; w < warps; w++) {
      tiles::load(own, scratch, w * V::length);
      detail::map(dst, Op{}, dst, own);
    }
  }
};

} // namespace tiles
