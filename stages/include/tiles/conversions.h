// Between element types, layouts, and a tile and its transpose.
#pragma once

#include "tiles/maps.h"
#include "tiles/ptx.h"

namespace tiles {

namespace detail {

/// The 8x8 tile of which the lanes hold pairs, transposed.
template <Element T> __device__ inline Pair<T> transpose_8x8(Pair<T> pair) {
  if constexpr (Element16<T>) {
    return ptx::movmatrix_trans(pair);
  } else {
    // This lane wants element (2 * (l % 4) + i, l / 4), held by lane 4 * (2 * (l % 4) + i) + l / 8 in its
    // half l / 4 % 2.
    const int source = lane_id() % 4 * 8 + lane_id() / 8;
    const bool second = lane_id() / 4 % 2;
    const float x0 = __shfl_sync(0xffffffffu, pair.x, source), y0 = __shfl_sync(0xffffffffu, pair.y, source);
    const float x1 = __shfl_sync(0xffffffffu, pair.x, source + 4),
                y1 = __shfl_sync(0xffffffffu, pair.y, source + 4);
    return {second ? y0 : x0, second ? y1 : x1};
  }
}

/// dst's lines = src's span. One 16x16 tile after the other; within one the quarters 1 and 2 change places.
template <RegisterTile D, RegisterTile S>
__device__ inline void exchange_lines_and_span(D &dst, const S &src) {
#pragma unroll
  for (int i = 0; i < S::lines / 16; i++)
#pragma unroll
    for (int j = 0; j < S::span / 16; j++)
#pragma unroll
      for (int pair = 0; pair < 4; pair++)
        dst.pairs[j][i][pair % 2 * 2 + pair / 2] = transpose_8x8<typename S::Elem>(src.pairs[i][j][pair]);
}

/// dst = src, which is spread over the lanes along a tile's other direction.
template <RegisterVector D, RegisterVector S> __device__ inline void copy_across(D &dst, const S &src) {
#pragma unroll
  for (int i = 0; i < D::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < D::per_lane; slot++) {
      float value;
      if constexpr (D::along ==
                    Along::span) { // entry 2 * (l % 4) + slot % 2 lies with the quad of that number
        value = __shfl_sync(0xffffffffu, to_float(src.values[i][slot / 2]), lane_id() % 4 * 8 + slot % 2 * 4);
      } else { // entry l / 4 lies with lane l / 8, as its value l / 4 % 2
        const float even = __shfl_sync(0xffffffffu, to_float(src.values[i][2 * slot]), lane_id() / 8);
        const float odd = __shfl_sync(0xffffffffu, to_float(src.values[i][2 * slot + 1]), lane_id() / 8);
        value = lane_id() / 4 % 2 ? odd : even;
      }
      dst.values[i][slot] = from_float<typename D::Elem>(value);
    }
}

/// Two vectors of the same length along different directions.
template <typename D, typename S>
concept Across = RegisterVector<D> && RegisterVector<S> && D::length == S::length && D::along != S::along;

} // namespace detail

/// dst = src in dst's element type, rounded to nearest. Vectors may also differ in their spread over the
/// lanes, tiles not in their layout.
template <InRegisters D, InRegisters S> __device__ inline void copy(D &dst, const S &src) {
  if constexpr (detail::Across<D, S>)
    detail::copy_across(dst, src);
  else if constexpr (std::is_same_v<D, S>)
    dst = src;
  else
    detail::map(dst, [](float x) { return x; }, src);
}

/// dst = src in the other layout: the same matrix, spread over the lanes by columns where it was by rows, or
/// the reverse.
template <RegisterTile D, RegisterTile S> __device__ inline void swap_layout(D &dst, const S &src) {
  static_assert(
      SameElement<D, S>,
      "given tiles of different element types, wanted the same: insert copy(same_type, tile) first");
  static_assert(
      SameSize<D, S>,
      "given tiles of different sizes, wanted the same rows and cols: transpose_sep exchanges them");
  static_assert(
      !SameElement<D, S> || !SameSize<D, S> || D::layout != S::layout,
      "given two tiles of the same layout, wanted two different ones: insert copy(dst, src) instead");
  if constexpr (SameElement<D, S> && SameSize<D, S> && D::layout != S::layout)
    detail::exchange_lines_and_span(dst, src);
}

/// The same registers as a tile of the transposed matrix in the other layout.
template <RegisterTile S> __device__ inline auto &transposed(S &tile) {
  using D = RegTile<typename S::Elem, S::cols, S::rows, S::row_layout ? Layout::col : Layout::row>;
  static_assert(sizeof(D) == sizeof(S));
  return reinterpret_cast<D &>(tile);
}

/// A tile of the same matrix in the other layout, in place of `tile` from here on: `auto &b =
/// swap_layout_inplace(a)`; a is not to be used again.
template <RegisterTile S> __device__ inline auto &swap_layout_inplace(S &tile) {
  using D = RegTile<typename S::Elem, S::rows, S::cols, S::row_layout ? Layout::col : Layout::row>;
  static_assert(sizeof(D) == sizeof(S));
  D swapped;
  swap_layout(swapped, tile);
  return reinterpret_cast<D &>(tile = reinterpret_cast<S &>(swapped));
}

/// dst = src transposed, in the same layout. They are to be two tiles (one whose contents stay where they are
/// is swap_layout's).
template <RegisterTile D, RegisterTile S> __device__ inline void transpose_sep(D &dst, const S &src) {
  static_assert(
      SameElement<D, S>,
      "given tiles of different element types, wanted the same: insert copy(same_type, tile) first");
  static_assert(D::rows == S::cols && D::cols == S::rows,
                "a tile of rows x cols is transposed into one of cols x rows");
  static_assert(D::layout == S::layout, "given a row-layout and a col-layout tile, wanted the same layout: "
                                        "insert swap_layout(other, tile) first");
  if constexpr (SameElement<D, S> && D::rows == S::cols && D::cols == S::rows && D::layout == S::layout)
    detail::exchange_lines_and_span(dst, src);
}

} // namespace tiles
