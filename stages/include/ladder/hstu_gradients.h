// Shared by the rungs of HSTU's backward: the tensors and gradients of one sequence and head as views of the
// tile library.
#pragma once

#include "ladder/hstu_backward.h"
#include "ladder/hstu_sequence.h"

namespace ladder {

/// A block's head, sequence and key tile: x, z and y of the grid. The blocks of a sequence start one after
/// the other, so its q and d_o, which all of them read, stay in the L2 cache.
struct BlockOfKeys {
  __device__ uint3 operator()() const {
    const uint3 block = tiles::block_index();
    return {block.x, block.z, block.y};
  }
};

/// The rows and gradients of one sequence and head, those of `Where`.
template <typename T, int d, typename Where> struct SequenceGradients : Sequence<T, d, Where> {
  using Base = Sequence<T, d, Where>;
  using Base::p, Base::q_begin, Base::q_len, Base::k_begin, Base::k_len, Base::where;
  const HstuBackwardProblem &gradients;

  __device__ explicit SequenceGradients(const HstuBackwardProblem &problem, Where where = {})
      : Base(problem.forward, where), gradients(problem) {}

  __device__ auto k() const { return Base::k(k_len); }
  __device__ auto v() const { return Base::v(k_len); }
  __device__ auto d_o() const { return rows(static_cast<const T *>(gradients.d_o), q_begin, q_len); }
  __device__ auto dq() const { return rows(static_cast<T *>(gradients.dq), q_begin, q_len); }
  __device__ auto dk() const { return rows(static_cast<T *>(gradients.dk), k_begin, k_len); }
  __device__ auto dv() const { return rows(static_cast<T *>(gradients.dv), k_begin, k_len); }

  /// Whether the bias has a gradient to which no other head adds.
  __device__ bool owns_d_rab() const { return gradients.d_rab && p.rab_heads != 1; }
  /// Its owner also writes the columns past the last key.
  __device__ tiles::WideMatrix<float> d_rab() const {
    return {gradients.d_rab + Base::bias_offset(), k_len, owns_d_rab() ? p.rab_stride : k_len, p.rab_stride};
  }

  /// The number of a tile of `queries` rows among the tiles of all sequences and heads. Between two sequences
  /// there may be a number without a tile.
  __device__ int64_t dq_tile(int tile, int queries) const {
    const uint3 block = where();
    return int64_t(block.x) * (p.total_q / queries + p.batch) + q_begin / queries + block.y + tile;
  }
  /// How many such numbers there are.
  static size_t dq_tiles(const HstuProblem &p, int queries) {
    return size_t(p.heads) * (p.total_q / queries + p.batch);
  }

  /// The number of a pair of the block's key tile and a tile of `queries`, the same for all heads.
  __device__ int64_t pair(int tile, int queries) const {
    const uint3 block = where();
    const int tiles = (p.max_q_len + queries - 1) / queries;
    return (int64_t(block.y) * gridDim.y + block.z) * tiles + tile;
  }

private:
  /// This head's part of `count` tokens from `begin` on of a contiguous tensor.
  template <typename E> __device__ tiles::StridedMatrix<E, d> rows(E *tensor, int begin, int count) const {
    const int stride = p.heads * d;
    return {tensor + int64_t(begin) * stride + where().x * d, count, stride};
  }
};

} // namespace ladder
