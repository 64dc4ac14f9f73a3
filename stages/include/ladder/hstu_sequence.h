// From an HSTU problem's pointers to the tile library's views of one sequence and head.
#pragma once

#include "ladder/hstu.h"
#include "ladder/hstu_mask.h"
#include "tiles/tiles.h"

namespace ladder {

/// What a block works on: the head, the sequence and the turn of its rows, x, y and z of the grid.
struct ThisBlock {
  __device__ uint3 operator()() const { return tiles::block_index(); }
};

/// The rows of one sequence and head, those of `Where`. k and v end after `keys` rows: what follows reads as
/// zero, and nothing is fetched for it. silu(0) is 0, so rows of zeros need no mask.
template <typename T, int d, typename Where = ThisBlock> struct Sequence {
  const HstuProblem &p;
  int q_begin, q_len, k_begin, k_len;
  Where where;

  __device__ explicit Sequence(const HstuProblem &problem, Where where = {})
      : Sequence(problem, where, where().y) {}

  /// Query i stands at position i + shift: the queries are the last of the sequence's tokens.
  __device__ int shift() const { return k_len - q_len; }

  /// The first query of this block of `rows`; the sequence's first block begins at `begin`, 0 or less. Blocks
  /// that see the most keys start first: the contexts, then the last queries. Blocks past the sequence's last
  /// one start last. They get a row past the last query.
  __device__ int block_row(int rows, int begin = 0) const {
    const uint3 block = where();
    const int contexts = p.num_contexts ? p.num_contexts[block.y] - shift() : 0, turn = block.z;
    const int first = contexts > 0 ? (contexts - begin + rows - 1) / rows : 0;
    const int blocks = (q_len - begin + rows - 1) / rows;
    const int number = turn < first || turn >= blocks ? turn : blocks - 1 - (turn - first);
    return begin + tiles::uniform(number) * rows;
  }

  template <bool kIntervals> __device__ HstuMask<kIntervals> mask() const {
    return {p, int(where().y), k_len, q_begin, shift()};
  }

  __device__ tiles::StridedMatrix<const T, d> q() const {
    return {static_cast<const T *>(p.q) + int64_t(q_begin) * p.q_stride + where().x * d, q_len, p.q_stride};
  }
  __device__ tiles::StridedMatrix<const T, d> k(int keys) const {
    return {static_cast<const T *>(p.k) + int64_t(k_begin) * p.k_stride + where().x * d, keys, p.k_stride};
  }
  __device__ tiles::StridedMatrix<const T, d> v(int keys) const {
    return {static_cast<const T *>(p.v) + int64_t(k_begin) * p.v_stride + where().x * d, keys, p.v_stride};
  }
  __device__ tiles::StridedMatrix<T, d> o() const {
    const int stride = p.heads * d;
    return {static_cast<T *>(p.o) + int64_t(q_begin) * stride + where().x * d, q_len, stride};
  }

  /// The bias of this head, or the one that all heads share: a row for each position.
  __device__ tiles::WideMatrix<const T> rab() const {
    return {static_cast<const T *>(p.rab) + bias_offset(), k_len, p.rab_stride, p.rab_stride};
  }

protected:
  __device__ int64_t bias_offset() const {
    const uint3 block = where();
    const int64_t head = int64_t(block.y) * p.rab_heads + (p.rab_heads == 1 ? 0 : block.x);
    return head * p.max_k_len * p.rab_stride;
  }

private:
  __device__ Sequence(const HstuProblem &problem, Where where, int b)
      : p(problem), q_begin(tiles::uniform(p.cu_seqlens_q[b])),
        q_len(tiles::uniform(p.cu_seqlens_q[b + 1]) - q_begin), k_begin(tiles::uniform(p.cu_seqlens_k[b])),
        k_len(tiles::uniform(p.cu_seqlens_k[b + 1]) - k_begin), where(where) {}
};

} // namespace ladder
