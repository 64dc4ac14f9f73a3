// Shared by the rungs of the backward ladder that take sequences of different lengths: their tiles, and
// backward_rows.h's row statistics, with each sequence's rows padded to whole tiles.
#pragma once

#include "ladder/backward_rows.h"

namespace ladder {

/// A tile of `rows` tokens by its number: those from `row` on of a sequence, of `length` tokens from `first`
/// on. Sequence b's tiles are numbered from offsets[b] / rows + b on, which leaves room for all of its
/// tokens. Between two sequences there may be a number without tokens.
struct JaggedTile {
  int sequence, first, length, row;

  __device__ JaggedTile(const int *offsets, int sequences, int rows, int number) : sequence(0) {
    for (int after = sequences; after - sequence > 1;) {
      const int middle = (sequence + after) / 2;
      (offsets[middle] / rows + middle <= number ? sequence : after) = middle;
    }
    first = offsets[sequence];
    length = offsets[sequence + 1] - first;
    row = (number - first / rows - sequence) * rows;
  }

  /// How many numbers there are.
  static int count(int tokens, int sequences, int rows) { return tokens / rows + sequences; }
};

/// The calling block's tile of `queries` rows, x of the grid, of the head y, and the rows of its sequence.
template <int queries> struct JaggedQueries {
  const AttentionBackwardVariant &p;
  const JaggedTile tile{p.cu_seqlens_q, p.batch, queries, int(blockIdx.x)};

  /// One of q, o and their gradients.
  template <int d, typename E> __device__ tiles::StridedMatrix<E, d> of(E *tensor) const {
    return {tensor + (int64_t(tile.first) * p.heads + blockIdx.y) * d, tile.length, p.heads * d};
  }
  /// lse or its gradient.
  __device__ tiles::GlobalVec<const float> of(const float *values) const {
    return {values + int64_t(blockIdx.y) * p.total_q + tile.first, tile.length};
  }
};

/// The row statistics of a tile of queries, with a warp for 16 rows. Padding rows have o, d_o and lse of 0,
/// and so no share in any gradient.
template <typename T, int d, int queries>
__global__ void __launch_bounds__(2 * queries)
    row_statistics_of_sequences(const __grid_constant__ AttentionBackwardVariant p, RowStatistics rows) {
  using namespace tiles;
  constexpr float kLog2E = 1.4426950408889634f;
  const JaggedQueries<queries> of_block{p};
  const int warp_row = threadIdx.x / 32 * 16, row = of_block.tile.row + warp_row;
  RegTile<T, 16, d> in;
  RegTile<float, 16, d> o, d_o;
  typename RegTile<float, 16, d>::ColVec delta, lse;
  load(in, of_block.of<d>(static_cast<const T *>(p.o)), row);
  copy(o, in);
  load(in, of_block.of<d>(static_cast<const T *>(p.d_o)), row);
  copy(d_o, in);
  mul(o, o, d_o);
  row_sum(delta, o);
  if (p.d_lse) {
    load(lse, of_block.of(p.d_lse), row);
    sub(delta, delta, lse);
  }
  mul(delta, delta, 1.f / (1 << rows.shift));
  load(lse, of_block.of(p.lse), row);
  mul(lse, lse, kLog2E);
  add(lse, lse, -float(rows.shift));
  const int64_t first = int64_t(blockIdx.y) * rows.padded_len + blockIdx.x * queries;
  store(GlobalVec<float>{rows.delta + first, queries}, delta, warp_row);
  store(GlobalVec<float>{rows.lse_log2 + first, queries}, lse, warp_row);
}

/// Enqueues the computation of `rows` by a grid of tiles and heads. They are stored in `memory`, 2 *
/// rows.padded_len floats per head.
template <typename T, int d, int queries>
void compute_row_statistics(const AttentionBackwardVariant &p, dim3 grid, RowStatistics &rows, float *memory,
                            cudaStream_t stream) {
  rows.lse_log2 = memory;
  rows.delta = memory + size_t(p.heads) * rows.padded_len;
  row_statistics_of_sequences<T, d, queries><<<grid, 2 * queries, 0, stream>>>(p, rows);
  check(cudaGetLastError(), "row_statistics: launch");
}

} // namespace ladder
