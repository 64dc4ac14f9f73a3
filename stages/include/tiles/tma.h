// TMA (sm_90): one thread's request moves a whole tile, swizzled. PTX manual, "Tensors" and
// "cp.async.bulk.tensor". The host describes the tensor: tensor_map.h.
#pragma once

#include <cuda.h>

#include "barrier.h"
#include "memory_global.h"

namespace tiles::tma {

/// A tensor (matrices, rows, Tile::cols) in global memory, read and written in tiles. Past the last row of a
/// matrix zeros are read and nothing is written. Kernels take it as `const __grid_constant__`.
template <SharedMemoryTile Tile> struct TensorMap {
  CUtensorMap descriptor;
};

/// A jagged tensor (tokens, heads, Tile::cols), whose sequences lie one behind the other, read in tiles of
/// one sequence and head. Past the sequence's last row zeros are read, although the next sequence follows
/// there.
///
/// TMA checks coordinates against the tensor's size, and knows no sequences. So the map has the tokens'
/// direction twice, with the same stride. Row r of a sequence of n rows that begins at token f is at the
/// coordinates most_rows - n + r and f + n: the former is inside the size, most_rows, as long as r < n. Their
/// sum is most_rows tokens too far. The map's address cannot begin that much before the data, where there may
/// be no memory; so a last dimension takes them off, whose one coordinate, most_rows, times its stride is
/// that many bytes less than 2^64, where addresses begin anew.
template <SharedMemoryTile Tile> struct JaggedMap {
  static constexpr int most_rows = 1 << 30;
  CUtensorMap descriptor;
};

/// One head of a sequence: `rows` tokens from `first` on.
struct Segment {
  int first, rows, head;
};

namespace detail {

template <SharedMemoryTile D>
__device__ inline void load_box(D &dst, const CUtensorMap &src, int row, int column_block, int outer,
                                int outermost, Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5, %6}], [%7];" ::"r"(ptx::shared_address(dst.data)),
      "l"(&src), "r"(0), "r"(row), "r"(column_block), "r"(outer), "r"(outermost), "r"(barrier.address())
      : "memory");
}

template <SharedMemoryTile D>
__device__ inline void load_box(D &dst, const CUtensorMap &src, int row, int column_block, int outermost,
                                Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4, %5}], [%6];" ::"r"(ptx::shared_address(dst.data)),
      "l"(&src), "r"(0), "r"(row), "r"(column_block), "r"(outermost), "r"(barrier.address())
      : "memory");
}

} // namespace detail

/// Begins to load the tile from `row` of `matrix` on. Its bytes count for `barrier`, which must expect them.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const TensorMap<D> &src, int row, int matrix, Barrier &barrier) {
  detail::load_box(dst, src.descriptor, row, 0, matrix, barrier);
}
/// The same from `row` of a segment on.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const JaggedMap<D> &src, int row, const Segment &segment,
                                  Barrier &barrier) {
  constexpr int most = JaggedMap<D>::most_rows;
  detail::load_box(dst, src.descriptor, most - segment.rows + row, segment.head * (D::cols / D::block_cols),
                   segment.first + segment.rows, most, barrier);
}

/// Begins to load a vector, src's entries from `first` on, all of which there are: 16-byte aligned, on both
/// sides.
template <SharedMemoryVector D>
__device__ inline void load_async(D &dst, const GlobalVec<const typename D::Elem> &src, int first,
                                  Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          ptx::shared_address(dst.data)),
      "l"(__cvta_generic_to_global(src.data + first)), "n"(sizeof(dst.data)), "r"(barrier.address())
      : "memory");
}

/// Begins to store a tile to `matrix`, from `row` on. Its writers call fence_async_proxy and meet at a
/// barrier first.
template <SharedMemoryTile S>
__device__ inline void store_async(const TensorMap<S> &dst, const S &src, int row, int matrix) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          &dst.descriptor),
      "r"(0), "r"(row), "r"(0), "r"(matrix), "r"(ptx::shared_address(src.data))
      : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the tiles of this thread's stores, except for the last kPending groups, have been read and may
/// be overwritten.
template <int kPending = 0> __device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

} // namespace tiles::tma
