// What fp8 needs beside the kernel: q, k and v rounded to e4m3, with one scale for each 64 queries, and each
// 128 keys, of a head and sequence, and the factors that follow from the scales.
#pragma once

#include "ladder/dispatch.h"
#include "ladder/hstu_sequence.h"
#include "ladder/workspace.h"
#include "tiles/tiles.h"

/// Tiles of kRows tokens that have a scale. Each sequence's begin at a number of their own, which follows
/// from its first token and is free whatever the lengths before it.
template <int kRows> struct ScaledTiles {
  static constexpr int rows = kRows;
  int heads;

  __host__ __device__ static int count(int tokens, int batch) { return tokens / kRows + batch; }
  /// Of the tile that has the token at `row` of sequence b, which begins at token `first`.
  __device__ int number(int b, int first, int row, int head) const {
    return (first / kRows + b + row / kRows) * heads + head;
  }
};
using QueryTiles = ScaledTiles<64>;
using KeyTiles = ScaledTiles<128>;

/// What is left of a problem's tensors. An element is its scale times what is stored.
struct Quantised {
  tiles::E4M3 *q, *k; ///< (tokens, heads, d)
  tiles::E4M3 *v;     ///< (key tiles, heads, d, 128), keys in the order of Fragments8
  float *q_scale, *k_scale, *v_scale;
  float *q_norm, *k_norm, *v_norm; ///< of a tile's longest row
};

/// The largest of a warp's values.
__device__ inline float warp_max(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

/// The largest of a block's values.
template <int kThreads> __device__ inline float block_max(float value) {
  __shared__ float of_warps[kThreads / 32];
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; warp++)
    value = fmaxf(value, of_warps[warp]);
  return value;
}

/// Eight 16-bit elements as numbers.
template <typename T> __device__ inline void load_eight(float (&x)[8], const T *src) {
  const uint4 words = *reinterpret_cast<const uint4 *>(src);
  const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 pair = tiles::unpack<T>(pairs[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

/// A block a tile, a thread a token. kTransposed: dst is (tiles, heads, d, rows), zero past the sequence's
/// end.
template <typename T, int d, typename Tiles, bool kTransposed>
__global__ void __launch_bounds__(Tiles::rows)
    quantise(const T *src, int stride, const int *offsets, tiles::E4M3 *dst, float *scales, float *norms) {
  const int head = blockIdx.x, heads = gridDim.x, b = blockIdx.y, first = offsets[b],
            row = blockIdx.z * Tiles::rows, token = row + threadIdx.x, length = offsets[b + 1] - first;
  if (row >= length)
    return;
  const bool is_there = token < length;
  const T *elements = src + int64_t(first + token) * stride + head * d;
  float x[8] = {}, largest = 0.f, squares = 0.f;
  for (int col = 0; is_there && col < d; col += 8) {
    load_eight(x, elements + col);
    for (float value : x) {
      largest = fmaxf(largest, fabsf(value));
      squares = fmaf(value, value, squares);
    }
  }
  const float scale = fmaxf(block_max<Tiles::rows>(largest) / 448.f, 1e-6f), inverse = 1.f / scale;
  const float norm = block_max<Tiles::rows>(sqrtf(squares));
  const int tile = Tiles{heads}.number(b, first, row, head);
  if (threadIdx.x == 0) {
    scales[tile] = scale;
    norms[tile] = norm;
  }
  for (int col = 0; col < d; col += 8) {
    if (is_there)
      load_eight(x, elements + col);
    const uint32_t low = tiles::ptx::pack_e4m3({inverse * x[0], inverse * x[1]},
                                               {inverse * x[2], inverse * x[3]}),
                   high = tiles::ptx::pack_e4m3({inverse * x[4], inverse * x[5]},
                                                {inverse * x[6], inverse * x[7]});
    if constexpr (kTransposed) {
      const int place = tiles::Fragments8<Tiles::rows>::place_of(threadIdx.x);
      for (int i = 0; i < 8; i++)
        dst[(int64_t(tile) * d + col + i) * Tiles::rows + place] = {
            uint8_t((i < 4 ? low : high) >> i % 4 * 8)};
    } else if (is_there) {
      *reinterpret_cast<uint2 *>(dst + (int64_t(first + token) * heads + head) * d + col) = {low, high};
    }
  }
}

/// With which factors 64 rows' logits and weights are computed, beside those of each key tile.
struct Factors {
  float logit, weight;
};

/// The factors of the 64 rows from `row` of the sequence on. Called by a warp.
///
/// Weights, times v_scale, are rounded with one factor for all keys, or their tiles' products would not add
/// up. Nobody has seen the largest weight yet, but |silu(x)| <= |x| <= |alpha| |q| |k|: the norms bound it.
/// The bound becomes 384, to leave room below 448 for the roundings of q and k.
template <typename T, int d, typename Where>
__device__ inline Factors factors(const ladder::Sequence<T, d, Where> &sequence, const Quantised &quantised,
                                  int row) {
  const ladder::HstuProblem &problem = sequence.p;
  const int b = sequence.where().y, head = sequence.where().x;
  if (row >= sequence.q_len)
    return {0.f, 1.f};
  float largest = 0.f;
  for (int key = KeyTiles::rows * tiles::lane_id(); key < sequence.k_len; key += KeyTiles::rows * 32) {
    const int tile = KeyTiles{problem.heads}.number(b, sequence.k_begin, key, head);
    largest = fmaxf(largest, quantised.k_norm[tile] * quantised.v_scale[tile]);
  }
  const int tile = QueryTiles{problem.heads}.number(b, sequence.q_begin, row, head);
  const float bound = fabsf(problem.alpha) * quantised.q_norm[tile] * warp_max(largest);
  return {problem.alpha * quantised.q_scale[tile], 384.f / fmaxf(bound, 1e-20f)};
}

/// Room for a problem's Quantised, for the duration of a launch, and the kernels that fill it.
template <typename T, int d> class Quantisation {
public:
  Quantisation(const ladder::HstuProblem &p, cudaStream_t stream)
      : bytes_(size_t(p.heads) * d * (size_t(p.total_q) + p.total_k + v_rows(p)), stream, "h6_wgmma: e4m3"),
        floats_(size_t(p.heads) * 2 * (q_tiles(p) + 2 * k_tiles(p)), stream, "h6_wgmma: scales") {
    out.q = bytes_.data();
    out.k = out.q + size_t(p.total_q) * p.heads * d;
    out.v = out.k + size_t(p.total_k) * p.heads * d;
    out.q_scale = floats_.data();
    out.q_norm = out.q_scale + q_tiles(p) * p.heads;
    out.k_scale = out.q_norm + q_tiles(p) * p.heads;
    out.k_norm = out.k_scale + k_tiles(p) * p.heads;
    out.v_scale = out.k_norm + k_tiles(p) * p.heads;
    out.v_norm = out.v_scale + k_tiles(p) * p.heads;
    run<QueryTiles, false>(p, p.q, p.q_stride, p.cu_seqlens_q, p.max_q_len, out.q, out.q_scale, out.q_norm,
                           stream);
    run<KeyTiles, false>(p, p.k, p.k_stride, p.cu_seqlens_k, p.max_k_len, out.k, out.k_scale, out.k_norm,
                         stream);
    run<KeyTiles, true>(p, p.v, p.v_stride, p.cu_seqlens_k, p.max_k_len, out.v, out.v_scale, out.v_norm,
                        stream);
  }

  Quantised out;

  static int k_tiles(const ladder::HstuProblem &p) { return KeyTiles::count(p.total_k, p.batch); }

private:
  static int q_tiles(const ladder::HstuProblem &p) { return QueryTiles::count(p.total_q, p.batch); }
  static size_t v_rows(const ladder::HstuProblem &p) { return size_t(k_tiles(p)) * KeyTiles::rows; }

  template <typename Tiles, bool kTransposed>
  static void run(const ladder::HstuProblem &p, const void *src, int stride, const int *offsets, int longest,
                  tiles::E4M3 *dst, float *scales, float *norms, cudaStream_t stream) {
    const dim3 grid = ladder::launch_grid(p.heads, p.batch, (longest + Tiles::rows - 1) / Tiles::rows);
    quantise<T, d, Tiles, kTransposed>
        <<<grid, Tiles::rows, 0, stream>>>(static_cast<const T *>(src), stride, offsets, dst, scales, norms);
    ladder::check(cudaGetLastError(), "h6_wgmma: quantise");
  }

  ladder::Workspace<tiles::E4M3> bytes_;
  ladder::Workspace<float> floats_;
};
