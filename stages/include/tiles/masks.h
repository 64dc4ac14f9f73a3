// Masks: dst = src where a condition on row and column holds, `value` elsewhere.
#pragma once

#include "tiles/conversions.h"

namespace tiles {

namespace detail {

/// dst[r][c] = keep(r, c) ? src[r][c] : value.
template <RegisterTile D, RegisterTile S, typename F>
__device__ inline void mask(D &dst, const S &src, float value, F keep) {
  require_same_places<D, S>();
#pragma unroll
  for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
    for (int j = 0; j < D::span / 16; j++)
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const int line = 16 * i + pair_line(pair), place = 16 * j + pair_span(pair);
        const bool first = D::row_layout ? keep(line, place) : keep(place, line);
        const bool second = D::row_layout ? keep(line, place + 1) : keep(place + 1, line);
        const float2 values = unpack<typename S::Elem>(src.pairs[i][j][pair]);
        dst.pairs[i][j][pair] = pack<typename D::Elem>({first ? values.x : value, second ? values.y : value});
      }
}

} // namespace detail

/// Keeps elements (r, c) for which bit c of bits(r) is set. For a tile of more than 64 columns, bits(r) is a
/// function: bit c of bits(r)(first) is for column first + c, with `first` a multiple of 64.
template <RegisterTile D, RegisterTile S, typename F>
__device__ inline void keep_bits(D &dst, const S &src, F bits, float value = 0.f) {
  constexpr bool one_word = std::is_convertible_v<std::invoke_result_t<F, int>, uint64_t>;
  static_assert(D::row_layout, "keep_bits: expected a row-layout tile");
  static_assert(!one_word || D::cols <= 64, "keep_bits: given bits(row), a word, for a tile of more than 64 "
                                            "columns, expected bits(row)(first_col), a word per 64 columns");
  detail::require_same_places<D, S>();
#pragma unroll
  for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const auto row = bits(16 * i + pair_line(half));
#pragma unroll
      for (int first = 0; first < D::span; first += 64) {
        uint64_t word;
        if constexpr (one_word)
          word = row >> pair_span(0);
        else
          word = row(first) >> pair_span(0);
#pragma unroll
        for (int j = first / 8; j < D::span / 8 && j < first / 8 + 8; j++) {
          const int pair = half + j % 2 * 2, bit = 8 * j - first;
          const float2 values = unpack<typename S::Elem>(src.pairs[i][j / 2][pair]);
          dst.pairs[i][j / 2][pair] = pack<typename D::Elem>(
              {word >> bit & 1 ? values.x : value, word >> (bit + 1) & 1 ? values.y : value});
        }
      }
    }
}

/// Keeps the columns of each row r below end(r), which may be negative or beyond the tile.
template <RegisterTile D, RegisterTile S, typename F>
__device__ inline void keep_before(D &dst, const S &src, F end, float value = 0.f) {
  static_assert(D::row_layout, "keep_before: expected a row-layout tile");
  detail::require_same_places<D, S>();
#pragma unroll
  for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int columns = end(16 * i + pair_line(half)) - pair_span(0);
#pragma unroll
      for (int j = 0; j < D::span / 8; j++) {
        const int pair = half + j % 2 * 2;
        const float2 values = unpack<typename S::Elem>(src.pairs[i][j / 2][pair]);
        dst.pairs[i][j / 2][pair] = pack<typename D::Elem>(
            {8 * j < columns ? values.x : value, 8 * j + 1 < columns ? values.y : value});
      }
    }
}

/// keep_bits for a transposed tile of up to 64 rows: keeps (r, c) for which bit r of bits(c) is set.
template <RegisterTile D, RegisterTile S, typename F>
__device__ inline void keep_bits_t(D &dst, const S &src, F bits, float value = 0.f) {
  static_assert(D::row_layout && D::rows <= 64, "keep_bits_t: expected a row-layout tile of up to 64 rows");
  detail::require_same_places<D, S>();
#pragma unroll
  for (int j = 0; j < D::span / 8; j++) {
    const uint64_t first = bits(8 * j + pair_span(0)) >> pair_line(0),
                   second = bits(8 * j + pair_span(0) + 1) >> pair_line(0);
#pragma unroll
    for (int i = 0; i < D::lines / 8; i++) {
      const int pair = i % 2 + j % 2 * 2;
      const float2 values = unpack<typename S::Elem>(src.pairs[i / 2][j / 2][pair]);
      dst.pairs[i / 2][j / 2][pair] = pack<typename D::Elem>(
          {first >> 8 * i & 1 ? values.x : value, second >> 8 * i & 1 ? values.y : value});
    }
  }
}

/// Keeps c <= r + diagonal, as torch.tril does.
template <RegisterTile D, RegisterTile S>
__device__ inline void tril(D &dst, const S &src, int diagonal = 0, float value = 0.f) {
  detail::mask(dst, src, value, [diagonal](int r, int c) { return c <= r + diagonal; });
}

/// Keeps c >= r + diagonal, as torch.triu does.
template <RegisterTile D, RegisterTile S>
__device__ inline void triu(D &dst, const S &src, int diagonal = 0, float value = 0.f) {
  detail::mask(dst, src, value, [diagonal](int r, int c) { return c >= r + diagonal; });
}

/// Causal mask: query first_row + r, row r of the tile, keeps the keys up to its own; column c is key
/// first_col + c. Where all rows see all columns, it costs one comparison.
template <RegisterTile D, RegisterTile S>
__device__ inline void make_causal(D &dst, const S &src, int first_row = 0, int first_col = 0,
                                   float value = -INFINITY) {
  if (first_row - first_col < S::cols - 1)
    tril(dst, src, first_row - first_col, value);
  else
    copy(dst, src);
}

/// The same for a transposed tile: row r is key first_row + r, column c is query first_col + c.
template <RegisterTile D, RegisterTile S>
__device__ inline void make_causal_t(D &dst, const S &src, int first_row = 0, int first_col = 0,
                                     float value = -INFINITY) {
  if (first_col - first_row < S::rows - 1)
    triu(dst, src, first_row - first_col, value);
  else
    copy(dst, src);
}

/// Replaces the columns from `col` on. Where there are none, it costs one comparison.
template <RegisterTile D, RegisterTile S>
__device__ inline void right_fill(D &dst, const S &src, int col, float value = -INFINITY) {
  if (col < S::cols)
    detail::mask(dst, src, value, [col](int, int c) { return c < col; });
  else
    copy(dst, src);
}

/// Replaces the rows from `row` on. Where there are none, it costs one comparison.
template <RegisterTile D, RegisterTile S>
__device__ inline void lower_fill(D &dst, const S &src, int row, float value = -INFINITY) {
  if (row < S::rows)
    detail::mask(dst, src, value, [row](int r, int) { return r < row; });
  else
    copy(dst, src);
}

} // namespace tiles
