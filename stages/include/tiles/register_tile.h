// Register tiles and their row and column vectors.
#pragma once

#include "tiles/types.h"

namespace tiles {

/// Which of a tile's two directions a vector runs along.
///
///   lines: one value per line of the tile. Of every 16, lane l holds entries l / 4 and l / 4 + 8, as do the
///          other three lanes of its quad.
///   span:  one value per position of the span. Of every 16, lane l holds entries 2 * (l % 4), + 1, + 8 and
///          + 9, as do the seven other lanes with the same l % 4.
enum class Along { lines, span };

/// A vector of kLength values, distributed over a warp like the rows or columns of a tile: RegTile::ColVec or
/// RegTile::RowVec.
template <Element T, int kLength, Along kAlong> struct RegVec {
  static_assert(kLength > 0 && kLength % 16 == 0, "a register vector's length is a multiple of 16");
  using Elem = T;
  static constexpr int length = kLength;
  static constexpr Along along = kAlong;
  static constexpr int per_lane = along == Along::lines ? 2 : 4; // of every 16

  T values[length / 16][per_lane];

  /// The index, among 16 entries, of the calling lane's values[..][slot].
  __device__ static int entry(int slot) {
    return along == Along::lines ? pair_line(slot) : pair_span(slot / 2 * 2) + slot % 2;
  }
};

/// A kRows x kCols tile in the registers of one warp.
template <Element T, int kRows, int kCols, Layout kLayout = Layout::row> struct RegTile {
  static_assert(kRows > 0 && kRows % 16 == 0 && kCols > 0 && kCols % 16 == 0,
                "a register tile's sides are multiples of 16");
  using Elem = T;
  static constexpr int rows = kRows, cols = kCols;
  static constexpr Layout layout = kLayout;
  static constexpr bool row_layout = layout == Layout::row;
  static constexpr int lines = row_layout ? rows : cols, span = row_layout ? cols : rows;

  /// ColVec has one value per row: the result of row_sum, the argument of mul_row. RowVec has one value per
  /// column.
  using ColVec = RegVec<T, rows, row_layout ? Along::lines : Along::span>;
  using RowVec = RegVec<T, cols, row_layout ? Along::span : Along::lines>;

  Pair<T> pairs[lines / 16][span / 16][4]; // [line / 16][span / 16][quarter], see types.h
};

/// 16 x kCols 8-bit elements in the registers of a warp, as operand A of wgmma. A lane's word holds four
/// adjacent columns. A lane of the fp32 tile that is rounded to it holds two adjacent columns, and two more 8
/// columns further. So the columns of every 16 are permuted, column c to place_of(c), and operand B has its
/// rows in the same order.
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
