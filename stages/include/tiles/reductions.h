// Reductions of a tile to one value per row.
#pragma once

#include "tiles/maps.h"

namespace tiles {

namespace detail {

/// The reduction over the lanes that differ only in the bits of kMask.
template <typename Op, int kMask> __device__ inline float reduce_lanes(float value) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2)
    if (kMask & bit)
      value = Op{}(value, __shfl_xor_sync(0xffffffffu, value, bit));
  return value;
}

/// dst[line] = op over the line's span, in two chains of half the length, then over the lanes that differ in
/// the bits of kMask. With kMask = 3 these are the four lanes of a quad, which together hold the whole line.
template <typename Op, int kMask, RegisterVector V, RegisterTile S>
__device__ inline void reduce_span(V &dst, const S &src) {
#pragma unroll
  for (int i = 0; i < S::lines / 16; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float2 values = unpack<typename S::Elem>(src.pairs[i][0][half]);
#pragma unroll
      for (int j = 1; j < S::span / 8; j++) {
        const float2 pair = unpack<typename S::Elem>(src.pairs[i][j / 2][half + j % 2 * 2]);
        values = {Op{}(values.x, pair.x), Op{}(values.y, pair.y)};
      }
      dst.values[i][half] = from_float<typename V::Elem>(reduce_lanes<Op, kMask>(Op{}(values.x, values.y)));
    }
}

/// dst[position of the span] = op over all lines. The eight lanes with the same l % 4 hold a position.
template <typename Op, RegisterVector V, RegisterTile S>
__device__ inline void reduce_lines(V &dst, const S &src) {
#pragma unroll
  for (int j = 0; j < S::span / 8; j++) {
    float2 values = unpack<typename S::Elem>(src.pairs[0][j / 2][j % 2 * 2]);
#pragma unroll
    for (int i = 1; i < S::lines / 8; i++) {
      const float2 pair = unpack<typename S::Elem>(src.pairs[i / 2][j / 2][i % 2 + j % 2 * 2]);
      values = {Op{}(values.x, pair.x), Op{}(values.y, pair.y)};
    }
    dst.values[j / 2][j % 2 * 2] = from_float<typename V::Elem>(reduce_lanes<Op, 28>(values.x));
    dst.values[j / 2][j % 2 * 2 + 1] = from_float<typename V::Elem>(reduce_lanes<Op, 28>(values.y));
  }
}

template <typename Op, RegisterVector V, RegisterTile S> __device__ inline void reduce(V &dst, const S &src) {
  if constexpr (V::along == Along::lines)
    reduce_span<Op, 3>(dst, src);
  else
    reduce_lines<Op>(dst, src);
}

template <typename Op, RegisterVector V, RegisterTile S>
__device__ inline void reduce_rows(V &dst, const S &src) {
  static_assert(V::length == S::rows && V::along == S::ColVec::along,
                "a row_ reduction returns one value per row: expected the tile's ColVec as destination; "
                "copy(other, col_vec) after it redistributes it over the lanes");
  reduce<Op>(dst, src);
}
template <RegisterVector V, RegisterTile S> __device__ constexpr bool require_fp32_rows() {
  constexpr bool fp32 = std::is_same_v<typename S::Elem, float>, column = V::length == S::rows;
  static_assert(S::row_layout,
                "given a col-layout tile, whose rows are distributed over other lanes, expected a row-layout "
                "one: insert swap_layout(row_tile, tile) first, or call row_max or row_sum");
  static_assert(fp32, "given a 16-bit tile, whose parts of rows would be rounded, expected fp32: insert "
                      "copy(tile_fp32, tile) first, or call row_max or row_sum");
  static_assert(column, "expected the tile's ColVec, one value per row");
  return S::row_layout && fp32 && column;
}

template <typename Op, RegisterVector V, RegisterTile S>
__device__ inline void reduce_rows(V &dst, const S &src, const V &accumulator) {
  V partial;
  reduce_rows<Op>(partial, src);
  map(dst, Op{}, accumulator, partial);
}

} // namespace detail

// dst = op over each row of src; with an accumulator, dst = accumulator op (op over each row).
template <RegisterVector V, RegisterTile S, typename... Acc>
__device__ inline void row_max(V &dst, const S &src, const Acc &...acc) {
  detail::reduce_rows<detail::Max>(dst, src, acc...);
}
template <RegisterVector V, RegisterTile S, typename... Acc>
__device__ inline void row_sum(V &dst, const S &src, const Acc &...acc) {
  detail::reduce_rows<detail::Add>(dst, src, acc...);
}

// row_max and row_sum of fp32 tiles in two steps: first over the quarter of each row that the calling lane
// holds, later over the lanes. Partial results can be scaled and added like those of whole rows, so a loop
// needs the second step only once, at its end.
template <RegisterVector V, RegisterTile S> __device__ inline void row_max_in_lane(V &dst, const S &src) {
  if constexpr (detail::require_fp32_rows<V, S>())
    detail::reduce_span<detail::Max, 0>(dst, src);
}
/// dst = accumulator + the sum of the lane's part of each row.
template <RegisterVector V, RegisterTile S>
__device__ inline void row_sum_in_lane(V &dst, const S &src, const V &accumulator) {
  if constexpr (detail::require_fp32_rows<V, S>()) {
    V part;
    detail::reduce_span<detail::Add, 0>(part, src);
    detail::map(dst, detail::Add{}, accumulator, part);
  }
}
template <RegisterVector V> __device__ inline void max_over_lanes(V &vec) {
  detail::map(vec, [](float x) { return detail::reduce_lanes<detail::Max, 3>(x); }, vec);
}
template <RegisterVector V> __device__ inline void sum_over_lanes(V &vec) {
  detail::map(vec, [](float x) { return detail::reduce_lanes<detail::Add, 3>(x); }, vec);
}

/// Whether any value of vec exceeds the other vector's by more than `slack`; the same answer in all lanes of
/// the warp.
template <RegisterVector V> __device__ inline bool any_above(const V &vec, const V &other, float slack) {
  bool above = false;
#pragma unroll
  for (int i = 0; i < V::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < V::per_lane; slot++)
      above |= to_float(vec.values[i][slot]) > to_float(other.values[i][slot]) + slack;
  return __any_sync(0xffffffffu, above);
}

} // namespace tiles
