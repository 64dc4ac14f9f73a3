// Conversions between element types and between layouts, and transposition.
#pragma once

#include "tiles/maps.h"
#include "tiles/ptx.h"

namespace tiles {

namespace detail {

/// Transposes the 8x8 tile that the lanes hold, one pair each.
template <Element T> __device__ inline Pair<T> transpose_8x8(Pair<T> pair) {
  if constexpr (Element16<T>) {
    return ptx::movmatrix_trans(pair);
  } else {
    // This lane needs elements (2 * (l % 4) + i, l / 4), i = 0 and 1. Lane 4 * (2 * (l % 4) + i) + l / 8
    // holds them, in half l / 4 % 2 of its pair.
    const int source = lane_id() % 4 * 8 + lane_id() / 8;
    const bool second = lane_id() / 4 % 2;
    const float x0 = __shfl_sync(0xffffffffu, pair.x, source), y0 = __shfl_sync(0xffffffffu, pair.y, source);
    const float x1 = __shfl_sync(0xffffffffu, pair.x, source + 4),
                y1 = __shfl_sync(0xffffffffu, pair.y, source + 4);
    return {second ? y0 : x0, second ? y1 : x1};
  }
}

/// dst's lines = src's span, one 16x16 tile after the other; within each, quarters 1 and 2 are exchanged.
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

/// dst = src, where src runs along the other direction of a tile.
template <RegisterVector D, RegisterVector S> __device__ inline void copy_across(D &dst, const S &src) {
#pragma unroll
  for (int i = 0; i < D::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < D::per_lane; slot++) {
      float value;
      if constexpr (D::along == Along::span) { // quad 2 * (l % 4) + slot % 2 holds this entry
        value = __shfl_sync(0xffffffffu, to_float(src.values[i][slot / 2]), lane_id() % 4 * 8 + slot % 2 * 4);
      } else { // lane l / 8 holds entry l / 4, as its value l / 4 % 2
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

/// dst = src in dst's element type, rounded to nearest. Vectors may also be distributed differently over the
/// lanes; tiles must have the same layout.
template <InRegisters D, InRegisters S> __device__ inline void copy(D &dst, const S &src) {
  if constexpr (detail::Across<D, S>)
    detail::copy_across(dst, src);
  else if constexpr (std::is_same_v<D, S>)
    dst = src;
  else
    detail::map(dst, [](float x) { return x; }, src);
}

/// dst = src, 16-bit tiles, in registers of its own. After copy() both names may stand for the same
/// registers, and while a product reads one of them as operand A, PTX forbids any access to them.
template <RegisterTile D> __device__ inline void copy_apart(D &dst, const D &src) {
  static_assert(sizeof(dst.pairs[0][0][0]) == 4,
                "given an fp32 tile, expected a 16-bit one: call copy(dst, src)");
#pragma unroll
  for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
    for (int j = 0; j < D::span / 16; j++)
#pragma unroll
      for (int k = 0; k < 4; k++) {
        uint32_t word;
        memcpy(&word, &src.pairs[i][j][k], 4);
        word = ptx::word_apart(word);
        memcpy(&dst.pairs[i][j][k], &word, 4);
      }
}

/// dst = src rounded to nearest, with its columns in the order of Fragments8; values beyond 448 become 448.
template <int kCols>
__device__ inline void copy(Fragments8<kCols> &dst, const RegTile<float, 16, kCols> &src) {
#pragma unroll
  for (int j = 0; j < kCols / 16; j++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      dst.words[j / 2][j % 2 * 2 + half] = ptx::pack_e4m3(src.pairs[0][j][half], src.pairs[0][j][half + 2]);
}

/// dst = src in the other layout: the same matrix, distributed over the lanes by columns instead of rows, or
/// the reverse.
template <RegisterTile D, RegisterTile S> __device__ inline void swap_layout(D &dst, const S &src) {
  static_assert(
      SameElement<D, S>,
      "given tiles of different element types, expected the same: insert copy(same_type, tile) first");
  static_assert(
      SameSize<D, S>,
      "given tiles of different sizes, expected the same rows and cols: transposed(tile) exchanges them");
  static_assert(
      !SameElement<D, S> || !SameSize<D, S> || D::layout != S::layout,
      "given two tiles of the same layout, expected two different ones: insert copy(dst, src) instead");
  if constexpr (SameElement<D, S> && SameSize<D, S> && D::layout != S::layout)
    detail::exchange_lines_and_span(dst, src);
}

/// A view of kCols columns of a tile from `first` on, a multiple of 16. They stay in their registers.
template <int kCols, RegisterTile S> __device__ inline auto &columns(S &tile, int first) {
  constexpr bool one_run = S::row_layout && S::rows == 16, fits = kCols <= S::cols;
  static_assert(one_run, "columns: given a tile whose columns are not contiguous in its registers, expected "
                         "a row-layout tile of 16 rows");
  static_assert(fits, "columns: the tile has fewer columns than requested");
  using D = RegTile<typename S::Elem, 16, kCols>;
  using Part = std::conditional_t<std::is_const_v<S>, const D, D>;
  return reinterpret_cast<Part &>(tile.pairs[0][first / 16]);
}

/// The same registers as a tile of the transposed matrix in the other layout.
template <RegisterTile S> __device__ inline auto &transposed(S &tile) {
  using D = RegTile<typename S::Elem, S::cols, S::rows, S::row_layout ? Layout::col : Layout::row>;
  static_assert(sizeof(D) == sizeof(S));
  return reinterpret_cast<D &>(tile);
}

} // namespace tiles
