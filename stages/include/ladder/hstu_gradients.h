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

/// Called by both warps of a pair, of kWarps per block. In the first one x holds silu's slopes, which it
/// passes in fp16. In the second one x holds dP^T, which becomes dS^T.
template <int kWarps, tiles::RegisterTile X, tiles::InSharedMemory Slopes>
__device__ inline void multiply_by_slopes(X &x, Slopes &smem, bool is_first) {
  tiles::RegTile<__half, X::rows, X::cols> slopes;
  if (is_first) {
    copy(slopes, x);
    store(smem, slopes);
  }
  tiles::group<2>::sync(1 + tiles::group<kWarps>::warp() / 2);
  if (!is_first) {
    load(slopes, smem);
    mul(x, x, slopes);
    __syncwarp(); // dS^T may replace the slopes
  }
}

/// From y = x / 2: p = silu(x), and slope becomes twice silu's slope at x. With t = tanh(y) they are y (1 +
/// t) and 1 + t + y (1 - t^2). Both are 0 at y = -128, where t is -1.
template <tiles::RegisterTile P, tiles::RegisterTile Slope, tiles::RegisterTile Y>
__device__ inline void silu_and_double_slope(P &p, Slope &slope, const Y &y) {
  const auto both = [](float y) {
    const float t = ladder::ptx::tanh_approx(y), r = 1.f + t;
    return float2{y * r, fmaf(y, fmaf(-t, t, 1.f), r)};
  };
#pragma unroll
  for (int j = 0; j < Y::span / 16; j++)
#pragma unroll
    for (int pair = 0; pair < 4; pair++) {
      const float2 values = y.pairs[0][j][pair];
      const float2 first = both(values.x), second = both(values.y);
      p.pairs[0][j][pair] = tiles::pack<typename P::Elem>({first.x, second.x});
      slope.pairs[0][j][pair] = tiles::pack<typename Slope::Elem>({first.y, second.y});
    }
}

/// Whether one of the rows first .. last sees one of the keys key .. end - 1, where intervals define the
/// mask. Called by a whole warp, whose lanes share the rows.
__device__ inline bool warp_sees_any(const HstuMask<true> &mask, int first, int last, int key, int end) {
  bool any = false;
#pragma unroll 1 // h8's producer has few registers
  for (int row = first + tiles::lane_id(); row <= last; row += 32) {
    const int *bound = mask.intervals + row;
    any |= *bound > key;
#pragma unroll 1
    for (int b = 1; b < mask.bounds; b += 2) {
      const int from = bound[b * mask.distance], to = bound[(b + 1) * mask.distance];
      any |= max(from, key) < min(to, end);
    }
  }
  return __any_sync(0xffffffffu, any);
}

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

/// The tiles of queries that see one of a block's keys. Query i is at position i + shift; `last` is the last
/// query.
template <typename A, bool kIntervals> struct SeeingTiles {
  const HstuMask<kIntervals> &mask;
  const int shift, last, block_key;

  /// The last such tile up to `tile`, or -1. Called by all threads of the block.
  __device__ int up_to(int tile) const {
    while (tile >= 0 && !sees(tile, block_key))
      tile--;
    return tile;
  }

  /// The last key tile before the block's own in which `tile` sees a key, counted from 1; 0 without one.
  __device__ int before(int tile) const {
    int key = block_key - A::keys;
    while (key >= 0 && !sees(tile, key))
      key -= A::keys;
    return (key + A::keys) / A::keys;
  }

  /// Whether a query of the tile sees a key of the key tile that begins at `key_tile`.
  __device__ bool sees(int tile, int key_tile) const {
    const int first = tile * A::queries, end = min(last, (tile + 1) * A::queries - 1);
    if constexpr (!kIntervals)
      return HstuKeys(mask, first + shift, end + shift).any_in(key_tile, A::keys);
    bool any = false;
    for (int i = first + threadIdx.x; i <= end; i += blockDim.x)
      for (int key = 0; key < A::keys; key += 64)
        any |= mask.row_bits(i + shift, key_tile + key, min(64, A::keys - key)) != 0;
    return __syncthreads_or(any);
  }
};

} // namespace ladder
