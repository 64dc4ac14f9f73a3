// Operands of tensor-core products that lie in shared memory as e4m3, two elements in each place of 16 bits.
//
// ldmatrix moves places of 16 bits. So of every 16 columns of a row a lane receives four adjacent ones, where
// the columns of a 16-bit tile would be two and two. The products need no exchange between lanes: along d, K
// has the same order as Q, and O the same as V.
#pragma once

#include "tiles/tiles.h"

namespace e4m3 {

using namespace tiles;

/// Two elements, as a type that the tile library loads and stores.
using Two = __half;

/// Two adjacent elements as halves, exactly.
__device__ inline uint32_t to_halves(uint32_t two) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(uint16_t(two)));
  return halves;
}

/// Calls f(i, j, half, row, col) for each four adjacent columns of the calling lane.
template <RegisterTile R, typename F> __device__ inline void for_each_four(F f) {
#pragma unroll
  for (int i = 0; i < R::rows / 16; i++)
#pragma unroll
    for (int j = 0; j < R::cols / 16; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        f(i, j, half, 16 * i + 8 * half + lane_id() / 4, 16 * j + 4 * (lane_id() % 4));
}

/// dst = src's tiles of 16 rows, from tile `first` on. Of every 16 columns, quarters 0 and 1 have 4 i and 4 i
/// + 1, where a 16-bit tile has 2 i and 2 i + 1, and quarters 2 and 3 have 4 i + 2 and 4 i + 3.
template <int kRows, int kCols, int kTiles>
__device__ inline void load_rows(RegTile<__half, kRows, kCols> &dst,
                                 const SharedTile<Two, 16, kCols / 2> (&src)[kTiles], int first) {
#pragma unroll
  for (int i = 0; i < kRows / 16; i++) {
    RegTile<Two, 16, kCols / 2> words;
    load(words, src[first + i]);
#pragma unroll
    for (int j = 0; j < kCols / 16; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const uint32_t four = words.pairs[0][j / 2][j % 2 * 2 + half];
        dst.pairs[i][j][half] = to_halves(four);
        dst.pairs[i][j][half + 2] = to_halves(four >> 16);
      }
  }
}

/// The same by columns. Of every 16 lines, 0 to 7 are the even columns, and 8 to 15 the odd ones.
template <int kRows, int kCols, int kTiles>
__device__ inline void load_columns(RegTile<__half, kRows, kCols, Layout::col> &dst,
                                    const SharedTile<Two, 16, kCols / 2> (&src)[kTiles], int first) {
#pragma unroll
  for (int i = 0; i < kRows / 16; i++) {
    RegTile<Two, 16, kCols / 2, Layout::col> words;
    load(words, src[first + i]);
#pragma unroll
    for (int j = 0; j < kCols / 16; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        // Two columns of one row and of the next; then two rows of one column and of the next.
        const uint32_t four = __byte_perm(words.pairs[j / 2][0][half * 2 + j % 2], 0, 0x3120);
        dst.pairs[j][i][half * 2] = to_halves(four);
        dst.pairs[j][i][half * 2 + 1] = to_halves(four >> 16);
      }
  }
}

/// dst = a b^T for as many rows b of src as dst has columns, from tile `first` on. a has the columns in the
/// order of load_rows.
template <RegisterTile D, RegisterTile A, typename S, int kTiles>
__device__ inline void mma_ABt(D &dst, const A &a, const S (&src)[kTiles], int first) {
  RegTile<__half, D::cols, A::cols> b;
  load_rows(b, src, first);
  tiles::mma_ABt(dst, a, b);
}

/// dst += a b for as many rows b of src as a has columns, from tile `first` on. dst has the columns in the
/// order of load_columns.
template <RegisterTile D, RegisterTile A, typename S, int kTiles>
__device__ inline void mma_AB(D &dst, const A &a, const S (&src)[kTiles], int first) {
  RegTile<__half, A::cols, D::cols, Layout::col> b;
  load_columns(b, src, first);
  tiles::mma_AB(dst, a, b, dst);
}

/// dst = src, with the columns in the order of load_rows. Rows beyond the end are zeros.
template <RegisterTile D, AnyGlobalMatrix M> __device__ inline void load_ordered(D &dst, const M &src) {
  for_each_four<D>([&](int i, int j, int half, int row, int col) {
    const uint2 four = row < src.rows ? *reinterpret_cast<const uint2 *>(src.at(row, col)) : uint2{};
    dst.pairs[i][j][half] = four.x;
    dst.pairs[i][j][half + 2] = four.y;
  });
}

/// dst = src, whose columns are in the order of load_columns.
template <AnyGlobalMatrix M, RegisterTile S>
__device__ inline void store_ordered(const M &dst, const S &src) {
  using T = typename M::Elem;
  for_each_four<S>([&](int i, int j, int half, int row, int col) {
    const float2 even = src.pairs[i][j][half], odd = src.pairs[i][j][half + 2];
    struct __align__(4 * sizeof(T)) Four {
      Pair<T> first, second;
    } four{pack<T>({even.x, odd.x}), pack<T>({even.y, odd.y})};
    if (row < dst.rows)
      *reinterpret_cast<Four *>(dst.at(row, col)) = four;
  });
}

/// dst = src in f16, each row times a power of two, and `scale` = `number` divided by that power. bf16 has a
/// larger range than f16: so the largest element of a row becomes 2^15 to 2^16.
template <RegisterTile D, RegisterTile S, RegisterVector Vec>
__device__ inline void to_f16(D &dst, Vec &scale, const S &src, float number) {
  Vec largest, power;
  zero(largest);
  for_each_four<S>([&](int i, int j, int half, int, int) {
    for (int pair = half; pair < 4; pair += 2) {
      const float2 x = unpack<typename S::Elem>(src.pairs[i][j][pair]);
      largest.values[i][half] = fmaxf(largest.values[i][half], fmaxf(fabsf(x.x), fabsf(x.y)));
    }
  });
  max_over_lanes(largest);
  const auto exponent = [](float x) { return max(int(__float_as_uint(x) >> 23), 16); };
  detail::map(power, [=](float x) { return __uint_as_float((269 - exponent(x)) << 23); }, largest);
  detail::map(scale, [=](float x) { return number * __uint_as_float((exponent(x) - 15) << 23); }, largest);
  mul_row(dst, src, power);
}

} // namespace e4m3
