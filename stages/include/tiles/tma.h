// TMA (sm_90): one thread asks, and a whole tile comes or goes, swizzled as it is wanted. PTX manual,
// "Tensors" and "cp.async.bulk.tensor". The host describes the tensor: tensor_map.h.
#pragma once

#include <cuda.h>

#include "barrier.h"
#include "concepts.h"

namespace tiles::tma {

/// A tensor (matrices, rows, Tile::cols) in global memory that is brought and stored in tiles. What a tile
/// has past the last row of its matrix comes as zeros and is not stored. Kernels take it as `const
/// __grid_constant__`.
template <SharedMemoryTile Tile> struct TensorMap {
  CUtensorMap descriptor;
};

/// Begins to bring the tile from `row` of `matrix` on. Its bytes count for `barrier`, where they are to be
/// expected.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const TensorMap<D> &src, int row, int matrix, Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5}], [%6];" ::"r"(ptx::shared_address(dst.data)),
      "l"(&src.descriptor), "r"(0), "r"(row), "r"(0), "r"(matrix), "r"(barrier.address())
      : "memory");
}

/// Begins to store a tile, to `row` of `matrix` on. fence_async_proxy by those who wrote it, and a barrier,
/// come before.
template <SharedMemoryTile S>
__device__ inline void store_async(const TensorMap<S> &dst, const S &src, int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          &dst.descriptor),
      "r"(0), "r"(row), "r"(0), "r"(matrix), "r"(ptx::shared_address(src.data))
      : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the tiles of this thread's stores, but for the last kPending commits, have been read and may
/// be overwritten.
template <int kPending = 0> __device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

} // namespace tiles::tma
