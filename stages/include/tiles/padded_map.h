// TMA for tensors with fewer columns than a tile: any multiple of 8 in tiles of whole column blocks. Included
// before ring.h, whose loads find the functions here.
#pragma once

#include "tensor_map.h"

namespace tiles::tma {

/// A tensor (batch, heads, rows, columns) in global memory of at most Tile::cols columns, loaded and stored
/// in tiles. Its matrices are numbered across the batch. Rows and columns beyond the last ones are loaded as
/// zeros and not stored. One instruction per column block: TMA compares columns with the tensor's width only
/// if they are one dimension of the map.
template <SharedMemoryTile Tile> struct PaddedMap {
  CUtensorMap descriptor;
  detail::Divisor heads;
};

/// The map of the tensor (batch, heads, rows, cols) at `data`. Strides and errors are those of tensor_map.
template <SharedMemoryTile Tile, typename Strides>
PaddedMap<Tile> padded_map(const void *data, const Strides &strides, int rows, int heads, int batch,
                           int cols) {
  constexpr cuuint64_t bytes = sizeof(typename Tile::Elem);
  return {detail::encode_boxes<Tile, 4>(
              data, {cuuint64_t(cols), cuuint64_t(rows), cuuint64_t(heads), cuuint64_t(batch)},
              {strides.row * bytes, strides.head * bytes, strides.batch * bytes},
              {Tile::block_cols, Tile::rows, 1, 1},
              [&] {
                return tiles::detail::text("%d x %d matrices of %d rows and %d columns, %lld bytes apart",
                                           batch, heads, rows, cols,
                                           static_cast<long long>(strides.row * bytes));
              }),
          detail::Divisor(heads)};
}

/// Issues the load of the tile from `row` of `matrix` on. Its bytes, zeros included, are counted by
/// `barrier`, which must expect them.
template <SharedMemoryTile D>
__device__ inline void load_async(D &dst, const PaddedMap<D> &src, int row, int matrix, Barrier &barrier) {
  const int batch = src.heads.divide(matrix), head = matrix - batch * src.heads.value;
  for (int col = 0; col < D::cols; col += D::block_cols)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3, %4, %5}], [%6];" ::"r"(ptx::shared_address(dst.at(0, col))),
        "l"(&src.descriptor), "r"(col), "r"(row), "r"(head), "r"(batch), "r"(barrier.address())
        : "memory");
}

/// Issues the store of a tile to `matrix`, from `row` on. Before it, the threads that wrote the tile execute
/// fence_async_proxy and a barrier.
template <SharedMemoryTile S>
__device__ inline void store_async(const PaddedMap<S> &dst, const S &src, int row, int matrix) {
  const int batch = dst.heads.divide(matrix), head = matrix - batch * dst.heads.value;
  for (int col = 0; col < S::cols; col += S::block_cols)
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(
            &dst.descriptor),
        "r"(col), "r"(row), "r"(head), "r"(batch), "r"(ptx::shared_address(src.at(0, col)))
        : "memory");
}

} // namespace tiles::tma
