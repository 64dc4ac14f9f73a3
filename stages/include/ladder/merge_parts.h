// The merge of a sequence's splits, for rungs whose last block merges.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ladder/decoding.h"
#include "ladder/ptx.h"

namespace ladder {

/// The outputs of the splits: o (splits, batch, heads, q_len, d) and lse (splits, batch, heads, q_len) in
/// fp32, each for the keys of its split alone.
struct Parts {
  float *o, *lse;
};

/// Reduces a value of each lane; all lanes have the result.
template <typename F> __device__ float over_warp(float x, F combine) {
  for (int distance = 16; distance > 0; distance /= 2)
    x = combine(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

/// Merges rows of the parts: o = sum of exp(lse_s - lse) o_s over the splits s, in this order, and lse =
/// log(sum of exp(lse_s)). Called by a warp, for kRows rows or the `rows` that are left. Lane i has the lse
/// and the weight of split i. The loads of kSplits parts of each row are issued together.
template <int kRows, int kSplits, typename T, int d>
__device__ void merge_rows(const DecodingProblem &p, const Parts &parts, int64_t first_row, int rows,
                           int splits) {
  constexpr int columns = d / 32; // of a lane
  constexpr float kLog2E = 1.4426950408889634f;
  const int lane = threadIdx.x % 32;
  struct __align__(columns % 4 == 0 ? 16 : 8) Floats {
    float x[columns];
  };
  const int64_t all_rows = int64_t(p.batch) * p.heads * p.q_len;
  const auto place = [&](int split, int i) { return split * all_rows + first_row + min(i, rows - 1); };
  Floats o[kRows] = {}, part[kSplits][kRows];
  const auto load_parts = [&](int first) {
#pragma unroll
    for (int s = 0; s < kSplits; s++)
#pragma unroll
      for (int i = 0; i < kRows; i++)
        part[s][i] = *reinterpret_cast<const Floats *>(parts.o + place(min(first + s, splits - 1), i) * d +
                                                       lane * columns);
  };
  float weights[kRows], largest[kRows], sums[kRows];
#pragma unroll
  for (int i = 0; i < kRows; i++)
    weights[i] = lane < splits ? parts.lse[place(lane, i)] : -INFINITY;
  load_parts(0); // before the reductions, which wait for lse
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    largest[i] = over_warp(fmaxf(weights[i], -FLT_MAX), [](float a, float b) { return fmaxf(a, b); });
    weights[i] = ptx::exp2_approx((weights[i] - largest[i]) * kLog2E);
    sums[i] = over_warp(weights[i], [](float a, float b) { return a + b; });
  }
  for (int first = 0; first < splits; first += kSplits) {
    if (first > 0)
      load_parts(first);
#pragma unroll
    for (int s = 0; s < kSplits; s++)
      if (first + s < splits)
#pragma unroll
        for (int i = 0; i < kRows; i++) {
          const float weight = __shfl_sync(0xffffffffu, weights[i], first + s);
          for (int c = 0; c < columns; c++)
            o[i].x[c] += weight * part[s][i].x[c];
        }
  }
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    if (i >= rows)
      break;
    const float inverse = 1.f / (sums[i] + FLT_MIN); // the sum is 0, or at least 1
    T *out = static_cast<T *>(p.o) + (first_row + i) * d + lane * columns;
    for (int c = 0; c < columns; c += 2)
      *reinterpret_cast<uint32_t *>(out + c) = ptx::pack<T>(o[i].x[c] * inverse, o[i].x[c + 1] * inverse);
    if (lane == 0)
      p.lse[first_row + i] = largest[i] + logf(sums[i]);
  }
}

/// Merges the rows of a share's tile, which the workers share. They all wait for memory once per batch of
/// loads.
template <typename T, int d, int kWorkers, typename Share>
__device__ void merge_tile(const DecodingProblem &p, const Parts &parts, const Share &share, int worker) {
  constexpr int batch = d == 256 ? 16 : 32; // rows times splits
  const int64_t first_row = share.first_row();
  const int rows = share.rows(), splits = share.splits;
  const int own = (rows + kWorkers - 1) / kWorkers;
  for (int row = worker * own; row < min(rows, (worker + 1) * own); row += 4)
    if (own == 1)
      merge_rows<1, batch, T, d>(p, parts, first_row + row, 1, splits);
    else
      merge_rows<4, batch / 4, T, d>(p, parts, first_row + row, min(rows, (worker + 1) * own) - row, splits);
}

} // namespace ladder
