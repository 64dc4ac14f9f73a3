// TMA (sm_90): an instruction of one thread copies a whole tile, swizzled. PTX manual, "Tensors" and
// "cp.async.bulk.tensor". The host encodes the tensor's description: tensor_map.h.
#pragma once

#include <cuda.h>

#include "barrier.h"
#include "memory_global.h"

namespace tiles::tma {

namespace detail {

/// A divisor of numbers from 0 to 2^31 - 1, which divides by a multiplication: the thread that issues loads
/// would be late if it divided before each one (Granlund and Montgomery, "Division by Invariant Integers
/// using Multiplication", 1994).
struct Divisor {
  int value;
  unsigned multiplier, shift; ///< ceil(2^(31 + shift) / value), and the least shift with 2^shift >= value

  explicit Divisor(int divisor) : value(divisor), shift(0) {
    while ((1u << shift) < unsigned(divisor))
      shift++;
    multiplier = ((uint64_t(1) << (31 + shift)) + divisor - 1) / divisor;
  }
  __device__ int divide(int number) const { return __umulhi(2u * number, multiplier) >> shift; }
};

} // namespace detail

/// A tensor (batch, heads, rows, Tile::cols) in global memory, loaded and stored in tiles. Its matrices are
/// numbered across the batch. Rows beyond the last one of a matrix are loaded as zeros and not stored. A
/// kernel's parameter is `const __grid_constant__`.
///
/// The map has four dimensions: columns of a block, rows, column blocks and matrices. Where matrices are not
/// equally far apart, matrix m is m / heads in the last dimension, and begins at the column block
/// m % heads * head_blocks.
template <SharedMemoryTile Tile> struct TensorMap {
  CUtensorMap descriptor;
  detail::Divisor heads;
  int head_blocks;
};

/// A jagged tensor (tokens, heads, Tile::cols) of consecutive sequences, loaded in tiles of one sequence and
/// head. Rows beyond the sequence's last one are loaded as zeros, although the next sequence follows there.
///
/// TMA compares coordinates with the tensor's size only, not with sequences. So the map has two dimensions
/// for tokens, with the same stride. Row r of a sequence of n rows that starts at token f has the coordinates
/// most_rows - n + r and f + n. The first is in bounds, below most_rows, if and only if r < n. Their sum is
/// most_rows tokens too large. The map's address cannot be that much lower than the data, because there may
/// be no memory. Instead, a last dimension subtracts these tokens modulo 2^64: its coordinate is most_rows,
/// and its stride makes the product that many bytes less than 2^64.
template <SharedMemoryTile Tile> struct JaggedMap {
  static constexpr int most_rows = 1 << 30;
  CUtensorMap descriptor;
};

/// A tensor (matrices, rows, cols) in global memory, loaded in tiles from any row and column on. What is out
/// of bounds is loaded as zeros.
template <SharedMemoryTile Tile> struct WideMap {
  static_assert(Tile::cols == Tile::block_cols, "WideMap: expected tiles of one column block");
  CUtensorMap descriptor;
};

/// A column of a matrix of a WideMap.
struct MatrixColumn {
  int col, matrix;
};

/// One head of a sequence: `rows` tokens from `first` on.
struct Segment {
  int first, rows, head;
};

namespace detail {

/// Where a matrix begins in a TensorMap.
struct MatrixPlace {
  int column_block, outermost;
};
template <SharedMemoryTile Tile>
__device__ inline MatrixPlace place_of(const TensorMap<Tile> &map, int matrix) {
  const int outermost = map.heads.divide(matrix);
  return {(matrix - outermost * map.heads.value) * map.head_blocks, outermost};
}

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

/// Issues the load of the tile from `row` of `matrix` on. Its bytes are counted by `barrier`, which must
/// expect them.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const TensorMap<D> &src, int row, int matrix, Barrier &barrier) {
  const detail::MatrixPlace place = detail::place_of(src, matrix);
  detail::load_box(dst, src.descriptor, row, place.column_block, place.outermost, barrier);
}
/// The same from `row` of a segment on.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const JaggedMap<D> &src, int row, const Segment &segment,
                                  Barrier &barrier) {
  constexpr int most = JaggedMap<D>::most_rows;
  detail::load_box(dst, src.descriptor, most - segment.rows + row, segment.head * (D::cols / D::block_cols),
                   segment.first + segment.rows, most, barrier);
}

/// The same from `row` and a column on.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const WideMap<D> &src, int row, const MatrixColumn &where,
                                  Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4}], [%5];" ::"r"(ptx::shared_address(dst.data)),
      "l"(&src.descriptor), "r"(where.col), "r"(row), "r"(where.matrix), "r"(barrier.address())
      : "memory");
}

/// Issues the load of a vector, src's entries from `first` on, all of which are in bounds; both addresses are
/// multiples of 16 bytes.
template <SharedMemoryVector D>
__device__ inline void load_async(D &dst, const GlobalVec<const typename D::Elem> &src, int first,
                                  Barrier &barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          ptx::shared_address(dst.data)),
      "l"(__cvta_generic_to_global(src.data + first)), "n"(sizeof(dst.data)), "r"(barrier.address())
      : "memory");
}

/// Issues the store of a tile to `matrix`, from `row` on. Before it, the threads that wrote the tile execute
/// fence_async_proxy and a barrier.
template <SharedMemoryTile S>
__device__ inline void store_async(const TensorMap<S> &dst, const S &src, int row, int matrix) {
  const detail::MatrixPlace place = detail::place_of(dst, matrix);
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
          &dst.descriptor),
      "r"(0), "r"(row), "r"(place.column_block), "r"(place.outermost), "r"(ptx::shared_address(src.data))
      : "memory");
}
/// The same to `row` of a segment on, whose rows beyond the last one are not stored.
template <SharedMemoryTile S>
__device__ inline void store_async(const JaggedMap<S> &dst, const S &src, int row, const Segment &segment) {
  constexpr int most = JaggedMap<S>::most_rows;
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(
          &dst.descriptor),
      "r"(0), "r"(most - segment.rows + row), "r"(segment.head * (S::cols / S::block_cols)),
      "r"(segment.first + segment.rows), "r"(most), "r"(ptx::shared_address(src.data))
      : "memory");
}
__device__ inline void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the tiles of this thread's stores have been read and may be overwritten, except for the last
/// kPending groups of stores.
template <int kPending = 0> __device__ inline void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

} // namespace tiles::tma
