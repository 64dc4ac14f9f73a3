// Transfers between shared memory and registers, by one warp. The caller puts a barrier between writers and
// readers: __syncwarp, or a group's sync.
#pragma once

#include "tiles/concepts.h"
#include "tiles/ptx.h"

namespace tiles {

namespace detail {

/// The order of a 16x16 tile's quarters: those of the same span together (0 1 2 3, as in tiles and in operand
/// A of an mma), or those of the same lines (0 2 1 3, as in operand B).
enum class Quarters { by_span, by_lines };

/// The address of the row of 8 elements that this lane passes to ldmatrix or stmatrix: lanes 8i..8i+7 pass
/// those of quarter i.
template <Layout kLayout, Quarters kOrder, InSharedMemory S>
__device__ inline auto *row_address(S &tile, int i, int j) {
  constexpr bool by_row = kLayout == Layout::row;
  const int lane = lane_id();
  const int first = by_row == (kOrder == Quarters::by_span)
                        ? S::offset(lane % 16, lane / 16 * 8)
                        : S::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  return tile.place(first, 16 * (by_row ? i : j), 16 * (by_row ? j : i));
}

/// Loads lines 16 i .. 16 i + 15, positions 16 j .. 16 j + 15 of the span.
template <Layout kLayout, Quarters kOrder = Quarters::by_span, InSharedMemory S>
__device__ inline void load_16x16(uint32_t (&pairs)[4], const S &src, int i, int j) {
  const uint32_t address = ptx::shared_address(row_address<kLayout, kOrder>(src, i, j));
  if constexpr (kLayout == Layout::row)
    ladder::ptx::ldmatrix_x4(pairs, address);
  else
    ladder::ptx::ldmatrix_x4_trans(pairs, address);
}

template <Layout kLayout, InSharedMemory D>
__device__ inline void store_16x16(D &dst, const uint32_t (&pairs)[4], int i, int j) {
  char *row_smem = row_address<kLayout, Quarters::by_span>(dst, i, j);
  if constexpr (kLayout == Layout::row)
    ptx::stmatrix_x4(row_smem, pairs);
  else
    ptx::stmatrix_x4_trans(row_smem, pairs);
}

template <RegisterTile R, InSharedMemory S> __device__ constexpr bool require_part() {
  static_assert(SameElement<R, S>,
                "given a register and a shared tile of different element types, expected the same: load or "
                "store a register tile of the shared tile's type and insert copy(other, tile)");
  static_assert(R::cols == S::cols,
                "given a register and a shared tile of different widths, expected the same cols");
  static_assert(R::rows <= S::rows,
                "given a register tile with more rows than the shared tile, expected at most as many");
  return SameElement<R, S> && R::cols == S::cols && R::rows <= S::rows;
}

/// Calls f(i, j, pair, row, col) for each pair that the calling lane holds.
template <RegisterTile R, typename F> __device__ inline void for_each_place(F f) {
#pragma unroll
  for (int i = 0; i < R::lines / 16; i++)
#pragma unroll
    for (int j = 0; j < R::span / 16; j++)
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const int line = 16 * i + pair_line(pair), place = 16 * j + pair_span(pair);
        f(i, j, pair, R::row_layout ? line : place, R::row_layout ? place : line);
      }
}

} // namespace detail

/// dst = src's rows from first_row on, a multiple of 16.
template <RegisterTile D, InSharedMemory S>
__device__ inline void load(D &dst, const S &src, int first_row = 0) {
  if constexpr (!detail::require_part<D, S>())
    return;
  if constexpr (Element16<typename D::Elem>) {
#pragma unroll
    for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
      for (int j = 0; j < D::span / 16; j++)
        detail::load_16x16<D::layout>(dst.pairs[i][j], src, i + (D::row_layout ? first_row / 16 : 0),
                                      j + (D::row_layout ? 0 : first_row / 16));
  } else {
    detail::for_each_place<D>([&](int i, int j, int pair, int row, int col) {
      float2 &to = dst.pairs[i][j][pair];
      if constexpr (D::row_layout)
        to = ptx::load_shared<float2>(src.at(first_row + row, col));
      else
        to = {ptx::load_shared<float>(src.at(first_row + row, col)),
              ptx::load_shared<float>(src.at(first_row + row + 1, col))};
    });
  }
}

/// dst's rows from first_row on, a multiple of 16, = src.
template <InSharedMemory D, RegisterTile S>
__device__ inline void store(D &dst, const S &src, int first_row = 0) {
  if constexpr (!detail::require_part<S, D>())
    return;
  if constexpr (Element16<typename D::Elem>) {
#pragma unroll
    for (int i = 0; i < S::lines / 16; i++)
#pragma unroll
      for (int j = 0; j < S::span / 16; j++)
        detail::store_16x16<S::layout>(dst, src.pairs[i][j], i + (S::row_layout ? first_row / 16 : 0),
                                       j + (S::row_layout ? 0 : first_row / 16));
  } else {
    detail::for_each_place<S>([&](int i, int j, int pair, int row, int col) {
      const float2 from = src.pairs[i][j][pair];
      if constexpr (S::row_layout) {
        ptx::store_shared(dst.at(first_row + row, col), from);
      } else {
        ptx::store_shared(dst.at(first_row + row, col), from.x);
        ptx::store_shared(dst.at(first_row + row + 1, col), from.y);
      }
    });
  }
}

/// dst = src's entries from `first` on, a multiple of 16. Adjacent entries of a lane take one access.
template <RegisterVector D, SharedMemoryVector S>
__device__ inline void load(D &dst, const S &src, int first = 0) {
  static_assert(D::length <= S::length, "given a register vector longer than the shared one");
  constexpr int step = D::along == Along::span ? 2 : 1;
  using Entries = std::conditional_t<step == 2, Pair<typename S::Elem>, typename S::Elem>;
#pragma unroll
  for (int i = 0; i < D::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < D::per_lane; slot += step) {
      const auto entries = ptx::load_shared<Entries>(src.data + first + 16 * i + D::entry(slot));
      if constexpr (step == 2) {
        const float2 values = unpack<typename S::Elem>(entries);
        dst.values[i][slot] = from_float<typename D::Elem>(values.x);
        dst.values[i][slot + 1] = from_float<typename D::Elem>(values.y);
      } else {
        dst.values[i][slot] = from_float<typename D::Elem>(to_float(entries));
      }
    }
}

namespace detail {

template <RegisterTile D, RegisterTile S, SharedMemoryVector V>
__device__ constexpr bool require_shared_row() {
  static_assert(D::row_layout, "given a col-layout tile and a shared vector, expected a row-layout tile: "
                               "insert load(row_vec, vector), and call the operation with row_vec");
  static_assert(!D::row_layout || D::cols <= V::length,
                "given a shared vector with fewer entries than the tile has columns");
  return require_same_places<D, S>() && D::row_layout && D::cols <= V::length;
}

} // namespace detail

/// dst[r][c] = src[r][c] - vec[first + c]. Only 16 entries of vec at a time are in registers; a whole RowVec
/// of a wide tile would take many.
template <RegisterTile D, RegisterTile S, SharedMemoryVector V>
__device__ inline void sub_col(D &dst, const S &src, const V &vec, int first = 0) {
  if constexpr (!detail::require_shared_row<D, S, V>())
    return;
#pragma unroll
  for (int j = 0; j < D::span / 16; j++) {
    RegVec<float, 16, Along::span> part;
    load(part, vec, first + 16 * j);
#pragma unroll
    for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const float2 values = unpack<typename S::Elem>(src.pairs[i][j][pair]);
        dst.pairs[i][j][pair] = pack<typename D::Elem>(
            {values.x - part.values[0][pair / 2 * 2], values.y - part.values[0][pair / 2 * 2 + 1]});
      }
  }
}

/// dst's entries from `first` on = src. Lanes that hold the same entry store the same value to the same
/// address.
template <SharedMemoryVector D, RegisterVector S>
__device__ inline void store(D &dst, const S &src, int first = 0) {
  static_assert(S::length <= D::length, "given a register vector longer than the shared one");
#pragma unroll
  for (int i = 0; i < S::length / 16; i++)
#pragma unroll
    for (int slot = 0; slot < S::per_lane; slot++)
      ptx::store_shared(dst.data + first + 16 * i + S::entry(slot),
                        from_float<typename D::Elem>(to_float(src.values[i][slot])));
}

/// Makes the calling thread's writes to shared memory visible to wgmma and TMA, which access it through the
/// asynchronous proxy. A barrier between the threads must follow.
__device__ inline void fence_async_proxy() { ptx::fence_proxy_async(); }

} // namespace tiles
