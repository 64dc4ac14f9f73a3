// Shared by the rungs of the backward ladder: a head's tensors as views of the tile library, the steps of a
// block of keys, and two numbers per query row with the kernel that computes them.
#pragma once

#include <climits>
#include <cstdint>
#include <numeric>

#include "ladder/attention_backward.h"
#include "ladder/dispatch.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

namespace ladder {

/// Throws std::invalid_argument unless all tensors can be read and written `bytes` at a time.
inline void require_alignment(const AttentionBackwardProblem &p, unsigned bytes) {
  const void *tensors[] = {p.q, p.k, p.v, p.o, p.d_o, p.dq, p.dk, p.dv};
  for (const void *pointer : tensors)
    if (reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0)
      refuse("q, k, v, o and their gradients must be aligned to %u bytes", bytes);
}

/// The row statistics are padded to a multiple of this: the height of the largest tile.
constexpr int kPaddedTo = 128;

/// Two numbers for each of a head's padded_len query rows: log2(e) * lse, with which a logit becomes its
/// weight by one exp2, and delta = rowsum(d_o * o) - d_lse, which is subtracted from each dp of the row. The
/// weights of padding rows are 0. With a shift the weights are 2^shift * P: lse_log2 is smaller by shift, and
/// delta is scaled by 2^-shift, as dp must be.
struct RowStatistics {
  float *lse_log2, *delta; ///< (batch, heads, padded_len)
  int padded_len, shift;

  explicit RowStatistics(const AttentionBackwardProblem &p, int shift = 0)
      : padded_len((p.q_len + kPaddedTo - 1) / kPaddedTo * kPaddedTo), shift(shift) {}

  /// The rows of all heads, padding included.
  size_t count(const AttentionBackwardProblem &p) const { return size_t(p.batch) * p.heads * padded_len; }

  __device__ tiles::GlobalVec<const float> lse_of(int64_t head) const {
    return {lse_log2 + head * padded_len, padded_len};
  }
  __device__ tiles::GlobalVec<const float> delta_of(int64_t head) const {
    return {delta + head * padded_len, padded_len};
  }
};

/// The grid of a kernel with one block per `keys` keys. x counts up to four heads, y the blocks of a head, z
/// the groups of four heads. With a causal mask the blocks of the first keys have the most steps, and they
/// start first in each group, so the short blocks fill the gaps at the end. Only four heads run at a time, so
/// their q and d_o stay in the L2 cache while all of their blocks read them.
inline dim3 key_grid(const AttentionBackwardProblem &p, int keys) {
  const int heads = p.batch * p.kv_heads, section = std::gcd(heads, 4);
  return launch_grid(section, (p.kv_len + keys - 1) / keys, heads / section);
}
/// The calling block's key/value head.
__device__ inline int block_kv_head() { return blockIdx.z * gridDim.x + blockIdx.x; }

/// A tile of one query head's rows; the head is numbered across the batch.
struct QueryTile {
  int head, tile;
};

/// The steps of a block of keys: for each head that reads them, the tiles of `queries` rows that see one of
/// them, last ones first. They are walked with first() and after(): to compute a step's head and tile from
/// its number would take an integer division.
template <int queries> struct Steps {
  int kv_head, key; ///< the keys' head, and the first of them
  int heads, tiles, seen;

  __device__ Steps(const AttentionBackwardProblem &p, int kv_head, int key)
      : kv_head(kv_head), key(key), heads(p.heads / p.kv_heads), tiles((p.q_len + queries - 1) / queries),
        seen(max(0, tiles - (p.is_causal ? key / queries : 0))) {}

  __device__ int count() const { return heads * seen; }
  __device__ QueryTile first() const { return {kv_head * heads, tiles - 1}; }
  __device__ QueryTile after(QueryTile step) const {
    return step.tile > tiles - seen ? QueryTile{step.head, step.tile - 1}
                                    : QueryTile{step.head + 1, tiles - 1};
  }
  __device__ static int query(QueryTile step) { return step.tile * queries; }
  /// The tile's number among the tiles of all heads.
  __device__ int64_t dq_tile(QueryTile step) const { return int64_t(step.head) * tiles + step.tile; }
};

/// The tensors of one (batch, query head) and its key/value head, both numbered across the batch.
template <typename T, int d> struct BackwardHead {
  const AttentionBackwardProblem &p;
  int64_t query_head, kv_head;

  using In = tiles::GlobalMatrix<const T, d>;
  using Out = tiles::GlobalMatrix<T, d>;

  __device__ In q() const { return queries<const T>(p.q); }
  __device__ In d_o() const { return queries<const T>(p.d_o); }
  __device__ In k() const { return keys<const T>(p.k); }
  __device__ In v() const { return keys<const T>(p.v); }
  __device__ Out dq() const { return queries<T>(p.dq); }
  __device__ Out dk() const { return keys<T>(p.dk); }
  __device__ Out dv() const { return keys<T>(p.dv); }

private:
  template <typename E, typename Pointer> __device__ tiles::GlobalMatrix<E, d> queries(Pointer tensor) const {
    return {static_cast<E *>(tensor) + query_head * p.q_len * d, p.q_len};
  }
  template <typename E, typename Pointer> __device__ tiles::GlobalMatrix<E, d> keys(Pointer tensor) const {
    return {static_cast<E *>(tensor) + kv_head * p.kv_len * d, p.kv_len};
  }
};

/// Threads per block of row_statistics, and how many of them share a row: each reads 16 bytes of it.
constexpr int kRowThreads = 256;
template <typename T, int d> constexpr int kLanesPerRow = d * sizeof(T) / 16;

/// The row statistics of all heads, padding included: kLanesPerRow lanes per row.
template <typename T, int d>
__global__ void __launch_bounds__(kRowThreads)
    row_statistics(const __grid_constant__ AttentionBackwardProblem p, RowStatistics rows) {
  constexpr float kLog2E = 1.4426950408889634f;
  constexpr int lanes = kLanesPerRow<T, d>;
  const int64_t padded = (int64_t(blockIdx.x) * kRowThreads + threadIdx.x) / lanes;
  const int lane = threadIdx.x % lanes;
  const int64_t head = padded / rows.padded_len;
  const int row = padded % rows.padded_len;
  float sum = 0.f;
  if (row < p.q_len) {
    const int batch = head / p.heads, head_of_batch = head - int64_t(batch) * p.heads;
    const Strides &apart = p.d_o_strides;
    const T *const o_row = static_cast<const T *>(p.o) + (head * p.q_len + row) * d;
    const T *const d_o_row =
        static_cast<const T *>(p.d_o) + batch * apart.batch + head_of_batch * apart.head + row * apart.row;
    const uint4 o = reinterpret_cast<const uint4 *>(o_row)[lane],
                d_o = reinterpret_cast<const uint4 *>(d_o_row)[lane];
    using Pair = tiles::Pair<T>;
#pragma unroll
    for (int i = 0; i < int(sizeof(o) / sizeof(Pair)); i++) {
      const float2 x = tiles::unpack<T>(reinterpret_cast<const Pair *>(&o)[i]);
      const float2 y = tiles::unpack<T>(reinterpret_cast<const Pair *>(&d_o)[i]);
      sum += x.x * y.x + x.y * y.y;
    }
  }
  sum = tiles::detail::reduce_lanes<tiles::detail::Add, lanes - 1>(sum);
  if (lane != 0)
    return;
  const int64_t unpadded = head * p.q_len + row;
  const bool is_row = row < p.q_len;
  rows.lse_log2[padded] = is_row ? p.lse[unpadded] * kLog2E - rows.shift : INFINITY;
  rows.delta[padded] = ldexpf(is_row && p.d_lse ? sum - p.d_lse[unpadded] : sum, -rows.shift);
}

/// Enqueues the computation of `rows`, which are stored in `memory`, 2 * rows.count(p) floats.
template <typename T, int d>
void compute_row_statistics(const AttentionBackwardProblem &p, RowStatistics &rows, float *memory,
                            cudaStream_t stream) {
  rows.lse_log2 = memory;
  rows.delta = memory + rows.count(p);
  const dim3 grid = launch_grid(rows.count(p) * kLanesPerRow<T, d> / kRowThreads, 1);
  row_statistics<T, d><<<grid, kRowThreads, 0, stream>>>(p, rows);
  check(cudaGetLastError(), "row_statistics: launch");
}

} // namespace ladder
