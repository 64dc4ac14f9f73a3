// Register tiles, and the register vectors that go with them.
#pragma once

#include "tiles/types.h"

namespace tiles {

/// Which of a tile's two directions a vector runs along.
///
///   lines: one value a line of the tile. Lane l holds entries l / 4 and l / 4 + 8 of every 16, like its
///          three neighbours.
///   span:  one value a place of the span. Lane l holds entries 2 * (l % 4), + 1, + 8 and + 9 of every 16,
///          like the seven others of its l % 4.
enum class Along { lines, span };

/// A vector of kLength values spread over a warp like the rows or columns of a tile. It is RegTile::ColVec or
/// RegTile::RowVec.
template <Element T, int kLength, Along kAlong> struct RegVec {
  static_assert(kLength > 0 && kLength % 16 == 0, "a register vector's length is a multiple of 16");
  using Elem = T;
  static constexpr int length = kLength;
  static constexpr Along along = kAlong;
  static constexpr int per_lane = along == Along::lines ? 2 : 4; // of every 16

  T values[length / 16][per_lane];

  /// Which entry of the 16 values[..][slot] is.
  __device__ static int entry(int slot) {
    return along == Along::lines ? pair_line(slot) : pair_span(slot / 2 * 2) + slot % 2;
  }
};

/// A kRows x kCols tile spread over the registers of one warp.
template <Element T, int kRows, int kCols, Layout kLayout = Layout::row> struct RegTile {
  static_assert(kRows > 0 && kRows % 16 == 0 && kCols > 0 && kCols % 16 == 0,
                "a register tile's sides are multiples of 16");
  using Elem = T;
  static constexpr int rows = kRows, cols = kCols;
  static constexpr Layout layout = kLayout;
  static constexpr bool row_layout = layout == Layout::row;
  static constexpr int lines = row_layout ? rows : cols, span = row_layout ? cols : rows;

  /// A column: one value for each row, what row_sum gives and mul_row takes. A row: one value for each
  /// column.
  using ColVec = RegVec<T, rows, row_layout ? Along::lines : Along::span>;
  using RowVec = RegVec<T, cols, row_layout ? Along::span : Along::lines>;

  Pair<T> pairs[lines / 16][span / 16][4]; // [line / 16][span / 16][quarter], see types.h
};

/// 16 x kCols 8-bit elements, spread over a warp as wgmma's first factor. A lane's word has four columns side
/// by side, a lane of the fp32 tile that is rounded to it two and two that are 8 apart. So the columns of
/// each 16 change places, and the second factor has its rows in the same order: column c is at place_of(c).
template <int kCols> struct Fragments8 {
  static_assert(kCols > 0 && kCols % 32 == 0, "the columns of 8-bit fragments are a multiple of 32");
  using Elem = E4M3;
  static constexpr int rows = 16, cols = kCols;

  uint32_t words[cols / 32][4]; // [col / 32][quarter of 8 x 16]

  __host__ __device__ static constexpr int place_of(int col) {
    return col / 16 * 16 + col % 8 / 2 * 4 + col / 8 % 2 * 2 + col % 2;
  }
};

} // namespace tiles
