// From the problem's pointers to the tile library's views of them.
#pragma once

#include <climits>
#include <cstdint>

#include "ladder/attention.h"
#include "ladder/errors.h"
#include "tiles/tiles.h"

/// Throws std::invalid_argument if there are more rows than a Head, which counts them in 32 bits, can
/// address.
inline void require_rows_fit(const ladder::AttentionProblem &p) {
  if (int64_t(p.batch) * p.heads * p.q_len > INT_MAX || int64_t(p.batch) * p.kv_heads * p.kv_len > INT_MAX)
    ladder::refuse("q and k may have at most 2^31 - 1 rows each, over all batches and heads");
}

/// Views of the (batch, head) of blockIdx.z and blockIdx.x. k and v end after `keys` rows: rows beyond read
/// as zero and are not loaded.
template <typename T, int d> struct Head {
  const ladder::AttentionProblem &p;
  unsigned key; // rows before the first one of k and v
  int keys;

  __device__ Head(const ladder::AttentionProblem &problem, int keys)
      : p(problem),
        key(tiles::uniform((blockIdx.z * p.kv_heads + blockIdx.x / (p.heads / p.kv_heads)) * p.kv_len)),
        keys(keys) {}

  /// Rows before the first one of q, o and lse. Recomputed before and after the main loop, so that it takes
  /// no register in between.
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

/// Views of o and lse of a head, counted over all batches.
template <typename T, int d>
__device__ inline tiles::GlobalMatrix<T, d> output_of(const ladder::AttentionProblem &p, int head) {
  return {static_cast<T *>(p.o) + int64_t(head) * p.q_len * d, p.q_len};
}
__device__ inline tiles::GlobalVec<float> lse_of(const ladder::AttentionProblem &p, int head) {
  return {p.lse + int64_t(head) * p.q_len, p.q_len};
}
