// From the problem's pointers to the tile library's views of them.
#pragma once

#include <climits>
#include <cstdint>
#include <stdexcept>

#include "ladder/attention.h"
#include "tiles/tiles.h"

/// Throws std::invalid_argument when a Head's rows, which it counts in 32 bits, are too many.
inline void require_rows_fit(const ladder::AttentionProblem &p) {
  if (int64_t(p.batch) * p.heads * p.q_len > INT_MAX || int64_t(p.batch) * p.kv_heads * p.kv_len > INT_MAX)
    throw std::invalid_argument("q and k may have 2^31 - 1 rows each, over all batches and heads");
}

/// The tensors of one (batch, head), as the tile library wants them: those of blockIdx.z and blockIdx.x. Of k
/// and v the first `keys` rows: what is past them reads as zero, and nothing is fetched for it.
template <typename T, int d> struct Head {
  const ladder::AttentionProblem &p;
  unsigned key; // rows before the first one of k and v
  int keys;

  __device__ Head(const ladder::AttentionProblem &problem, int keys)
      : p(problem),
        key(tiles::uniform((blockIdx.z * p.kv_heads + blockIdx.x / (p.heads / p.kv_heads)) * p.kv_len)),
        keys(keys) {}

  /// Rows before the first one of q, o and lse: wanted before the main loop and after it, and not in between.
  __device__ unsigned query() const {
    const uint3 block = tiles::block_index();
    return tiles::uniform((block.z * p.heads + block.x) * p.q_len);
  }

  __device__ tiles::GlobalMatrix<const T, d> q() const {
    return {static_cast<const T *>(p.q) + int64_t(query()) * d, p.q_len};
  }
  __device__ tiles::GlobalMatrix<const T, d> k() const {
    return {static_cast<const T *>(p.k) + int64_t(key) * d, keys};
  }
  __device__ tiles::GlobalMatrix<const T, d> v() const {
    return {static_cast<const T *>(p.v) + int64_t(key) * d, keys};
  }
  __device__ tiles::GlobalMatrix<T, d> o() const {
    return {static_cast<T *>(p.o) + int64_t(query()) * d, p.q_len};
  }
  __device__ tiles::GlobalVec<float> lse() const { return {p.lse + query(), p.q_len}; }
};
