// How the blocks of norm_gate and of its gradients divide their rows: a block computes 16 whole rows at a
// time, and each of its warps has 64 of their columns, or 128. A warp keeps its elements in 16 bits, and
// computes with 16 columns at a time, so that few registers hold fp32.
//
// Unlike in the tile library, lane l holds four adjacent columns of every 16, from 4 * (l % 4) on, so that
// one access loads or stores whole sectors of 8 rows. The order of the columns matters to no operation here:
// vectors of columns have the same one.
#pragma once

#include <type_traits>

#include "ladder/launch.h"
#include "ladder/norm_gate.h"
#include "tiles/tiles.h"

namespace ladder::norm_gate_rows {

using namespace tiles;

constexpr int kRows = 16, kCols = 16, kMostWarps = 16;
/// Parts of 16 columns per warp.
constexpr int kNarrow = 4, kWide = 8;

/// The values that the warps of a block exchange, one per row and warp.
using Exchange = SharedVec<float, kRows>[kMostWarps];

/// Where the calling lane's four columns of every 16 begin.
__device__ inline int lane_col() { return lane_id() % 4 * 4; }

/// dst = 16 columns from `col` on of 16 rows; rows beyond the end are zeros.
template <typename Tile>
__device__ inline void load(Tile &dst, const void *matrix, const NormGateProblem &problem, int row, int col) {
  const auto *columns = static_cast<const typename Tile::Elem *>(matrix) + col + lane_col();
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int at = row + lane_id() / 4 + half * 8;
    const uint2 four =
        at < problem.rows ? *reinterpret_cast<const uint2 *>(columns + int64_t(at) * problem.cols) : uint2{};
    dst.pairs[0][0][half] = four.x;
    dst.pairs[0][0][half + 2] = four.y;
  }
}
template <typename Tile>
__device__ inline void store(void *matrix, const Tile &src, const NormGateProblem &problem, int row,
                             int col) {
  auto *columns = static_cast<typename Tile::Elem *>(matrix) + col + lane_col();
#pragma unroll
  for (int half = 0; half < 2; half++)
    if (const int at = row + lane_id() / 4 + half * 8; at < problem.rows)
      *reinterpret_cast<uint2 *>(columns + int64_t(at) * problem.cols) = {src.pairs[0][0][half],
                                                                          src.pairs[0][0][half + 2]};
}

using Columns = RegTile<float, kRows, kCols>::RowVec;

/// dst = 16 entries of a vector from `col` on.
__device__ inline void load(Columns &dst, const float *vector, int col) {
  const float4 four = *reinterpret_cast<const float4 *>(vector + col + lane_col());
  dst.values[0][0] = four.x, dst.values[0][1] = four.y;
  dst.values[0][2] = four.z, dst.values[0][3] = four.w;
}
__device__ inline void store(float *vector, const Columns &src, int col) {
  const auto &values = src.values[0];
  if (lane_id() < 4)
    *reinterpret_cast<float4 *>(vector + col + lane_col()) = {values[0], values[1], values[2], values[3]};
}

/// Calls f(part, first column) for each 16 columns of the calling warp. Only the second half of a wide warp's
/// columns may not exist.
template <int kParts, typename F> __device__ inline void for_each_part(int cols, F f) {
#pragma unroll
  for (int part = 0; part < kParts; part++)
    if (const int col = (threadIdx.x / 32 * kParts + part) * kCols; part < kNarrow || col < cols)
      f(part, col);
}

/// The calling warp's columns of 16 rows of a matrix. A narrow warp keeps them in registers, in 16 bits. A
/// wide one loads them whenever it reads them, after the first time from a cache: its registers do not hold
/// three matrices.
template <typename T, int kParts> class Rows {
public:
  __device__ Rows(const NormGateProblem &problem, const void *matrix, int row)
      : problem_(problem), matrix_(matrix), row_(row) {
    if constexpr (kParts == kNarrow)
      for_each_part<kParts>(problem.cols, [&](int part, int col) { load(part, col); });
  }

  /// dst = 16 columns from `col` on, in fp32.
  __device__ void read(RegTile<float, kRows, kCols> &dst, int part, int col) {
    if constexpr (kParts == kNarrow)
      forget_fp32(part);
    else
      load(part, col);
    copy(dst, tiles_[part]);
  }

private:
  __device__ void load(int part, int col) {
    norm_gate_rows::load(tiles_[part], matrix_, problem_, row_, col);
  }

  /// Without this the compiler keeps what it has converted to fp32, in twice the registers.
  __device__ void forget_fp32(int part) {
#pragma unroll
    for (int pair = 0; pair < 4; pair++)
      asm volatile("" : "+r"(tiles_[part].pairs[0][0][pair]));
  }

  const NormGateProblem &problem_;
  const void *matrix_;
  int row_;
  RegTile<T, kRows, kCols> tiles_[kParts];
};

/// 16 columns of a matrix from `col` on = src, rounded.
template <typename T>
__device__ inline void write(void *matrix, const RegTile<float, kRows, kCols> &src,
                             const NormGateProblem &problem, int row, int col) {
  RegTile<T, kRows, kCols> rounded;
  copy(rounded, src);
  store(matrix, rounded, problem, row, col);
}

/// sum = what the warps have stored of each row. Each lane of a quad adds up every fourth warp. Half of them
/// begin with rows 8 to 15, so that the four load from different banks.
template <typename V> __device__ inline void add_warps(V &sum, const Exchange &parts, int warps) {
  const int row = lane_id() / 4, late = lane_id() % 4 / 2 * 8;
  float first = 0, second = 0;
  for (int four = 0; four < warps; four += 4)
    if (const int warp = four + lane_id() % 4; warp < warps) {
      first += parts[warp].data[row + late];
      second += parts[warp].data[row + 8 - late];
    }
  sum.values[0][0] = late ? second : first;
  sum.values[0][1] = late ? first : second;
  sum_over_lanes(sum);
}

/// Each of `rows`, of which every lane holds a part, becomes its sum over the block. The order of the
/// additions is fixed, and all warps get the same bits. The exchanges may be used again after the next
/// barrier.
template <typename... V> __device__ inline void sum_over_block(Exchange *exchanges, V &...rows) {
  const int warps = blockDim.x / 32;
  (sum_over_lanes(rows), ...);
  if (warps == 1)
    return;
  int number = 0;
  (tiles::store(exchanges[number++][threadIdx.x / 32], rows), ...);
  __syncthreads();
  number = 0;
  (add_warps(rows, exchanges[number++], warps), ...);
}

/// sums += the sum of the rows that the calling lane holds.
__device__ inline void add_rows_in_lane(Columns &sums, const RegTile<float, kRows, kCols> &tile) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float2 upper = tile.pairs[0][0][2 * half], lower = tile.pairs[0][0][2 * half + 1];
    sums.values[0][2 * half] += upper.x + lower.x;
    sums.values[0][2 * half + 1] += upper.y + lower.y;
  }
}

/// Adds up what add_rows_in_lane has left in the eight lanes that hold the same columns.
__device__ inline void add_lanes(Columns &sums) {
#pragma unroll
  for (int slot = 0; slot < Columns::per_lane; slot++)
#pragma unroll
    for (int bit = 4; bit < 32; bit *= 2)
      sums.values[0][slot] += __shfl_xor_sync(0xffffffffu, sums.values[0][slot], bit);
}

/// The mean of each row.
template <typename V, typename T, int kParts>
__device__ inline void row_mean(V &mean, Rows<T, kParts> &rows, int cols, Exchange *exchange) {
  RegTile<float, kRows, kCols> x;
  zero(mean);
  for_each_part<kParts>(cols, [&](int part, int col) {
    rows.read(x, part, col);
    row_sum_in_lane(mean, x, mean);
  });
  sum_over_block(exchange, mean);
  mul(mean, mean, 1.f / cols);
}

/// 1 / sqrt(variance + epsilon) of each row, from the sum of its squared differences from the mean.
template <typename V> __device__ inline void invert_deviation(V &scale, const NormGateProblem &problem) {
  mul(scale, scale, 1.f / problem.cols);
  add(scale, scale, problem.epsilon);
  rsqrt(scale, scale);
}

/// Calls f(parts per warp, threads per block) for a number of columns; the first is a constant. Throws
/// std::invalid_argument.
template <typename F> void dispatch_columns(int cols, F &&f) {
  constexpr int step = kNarrow * kCols, most = kMostWarps * kWide * kCols;
  if (cols % step != 0 || cols > most)
    refuse("cols is %d; it must be a multiple of %d, at most %d", cols, step, most);
  const int warps = cols / step;
  if (warps <= kMostWarps)
    f(std::integral_constant<int, kNarrow>{}, warps * 32);
  else
    f(std::integral_constant<int, kWide>{}, (warps + 1) / 2 * 32);
}

} // namespace ladder::norm_gate_rows
