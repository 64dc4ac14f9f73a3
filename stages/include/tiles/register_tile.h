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

} // namespace tiles
