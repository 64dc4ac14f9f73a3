// From the problem's pointers to the tile library's views of them.
#pragma once

#include <cstdint>

#include "ladder/problem.h"
#include "tiles/tiles.h"

/// The tensors of one (batch, head), as the tile library wants them.
template <typename T, int d> struct Head {
  const ladder::AttentionProblem &p;
  unsigned query, key; // rows before the first one: of q, o and lse, and of k and v

  __device__ Head(const ladder::AttentionProblem &problem, int batch, int head)
      : p(problem), query(tiles::uniform((batch * p.heads + head) * p.q_len)),
        key(tiles::uniform((batch * p.kv_heads + head / (p.heads / p.kv_heads)) * p.kv_len)) {}

  __device__ tiles::GlobalMatrix<const T, d> q() const {
    return {static_cast<const T *>(p.q) + int64_t(query) * d, p.q_len};
  }
  __device__ tiles::GlobalMatrix<const T, d> k() const {
    return {static_cast<const T *>(p.k) + int64_t(key) * d, p.kv_len};
  }
  __device__ tiles::GlobalMatrix<const T, d> v() const {
    return {static_cast<const T *>(p.v) + int64_t(key) * d, p.kv_len};
  }
  __device__ tiles::GlobalMatrix<T, d> o() const {
    return {static_cast<T *>(p.o) + int64_t(query) * d, p.q_len};
  }
  __device__ tiles::GlobalVec<float> lse() const { return {p.lse + query, p.q_len}; }
};
