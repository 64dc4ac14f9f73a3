// Products of a warpgroup: wgmma (sm_90a), which reads tiles from shared memory and computes while its warps
// go on. A product is begun, and waited for where its result is needed.
//
//   warpgroup::mma_ABt(s, q, k);   // begins s = q k^T
//   warpgroup::mma_AB(o, p, v, o); // begins o = p v + o
//   warpgroup::mma_wait<1>(s);     // waits for all but the last one: s is there
//   warpgroup::mma_wait(o);        // waits for all
//
// Until then neither the destination nor a factor in registers may be touched, and shared tiles may not be
// overwritten. ptxas serialises products whose registers are touched.
//
// The destination has 64 rows, 16 a warp: it is a RegTile of 16 rows, whose pairs lie in the order of wgmma's
// registers, and so is a in registers. Factors in shared memory have all 64 rows; they are tiles or parts of
// tiles.
#pragma once

#include "group.h"
#include "wgmma_ptx.h"

namespace tiles {

namespace detail {

/// Along which of its directions a factor is multiplied and added up.
enum class Inner { cols, rows };

template <Inner kInner, typename X> constexpr int inner_length = kInner == Inner::cols ? X::cols : X::rows;
template <Inner kInner, typename X> constexpr int outer_length = kInner == Inner::cols ? X::rows : X::cols;

/// The bytes from the start of a tile to (row, col), multiples of 8 and 16, without the swizzle: it works on
/// addresses, and its pattern begins where a tile does and again every 8 rows.
template <SharedMemoryTile S> __device__ constexpr int plain_offset(int row, int col) {
  return col / S::block_cols * S::block_bytes + col % S::block_cols * int(sizeof(typename S::Elem)) +
         row * S::row_bytes;
}

template <SharedMemoryTile S> __device__ inline uint32_t start_address(const S &tile) {
  return ptx::shared_address(tile.data);
}
template <typename S, int kRows, int kCols>
__device__ inline uint32_t start_address(const SharedPart<S, kRows, kCols> &part) {
  return start_address(part.tile) + plain_offset<S>(part.row, part.col);
}

template <typename X> struct tile_of {
  using Tile = X;
};
template <typename S, int kRows, int kCols> struct tile_of<SharedPart<S, kRows, kCols>> {
  using Tile = S;
};

/// Describes a factor in shared memory to wgmma, from k on along its inner direction: where it begins, the
/// distance between column blocks and, within a block, between groups of 8 rows, and the swizzle. What
/// differs from k to k is a constant added at the end: one instruction. PTX manual, "Matrix Descriptor
/// Format".
template <Inner kInner, InSharedMemory X> __device__ inline uint64_t descriptor(const X &factor, int k) {
  using S = typename tile_of<X>::Tile;
  constexpr uint32_t swizzle = S::row_bytes == 128 ? 1 : S::row_bytes == 64 ? 2 : 3;
  constexpr uint32_t column_block = S::block_bytes >> 4 << 16, eight_rows = 8 * S::row_bytes >> 4;
  const uint32_t from_k = kInner == Inner::cols ? plain_offset<S>(0, k) : plain_offset<S>(k, 0);
  const uint32_t lower = (start_address(factor) >> 4 | column_block) + (from_k >> 4);
  return uint64_t(eight_rows | swizzle << 30) << 32 | lower;
}

/// Keeps the compiler from moving accesses to these registers across this point: it does not know that wgmma
/// writes them.
template <RegisterTile D> __device__ inline void fence_operand(D &tile) {
#pragma unroll
  for (int j = 0; j < D::span / 16; j++)
#pragma unroll
    for (int pair = 0; pair < 4; pair++)
      asm volatile("" : "+f"(tile.pairs[0][j][pair].x), "+f"(tile.pairs[0][j][pair].y)::"memory");
}

/// True of what is in registers, too.
template <typename X> inline constexpr bool swizzled_in_shared = true;
template <SharedMemoryTile S>
inline constexpr bool swizzled_in_shared<S> = S::placement == Placement::swizzled;
template <typename S, int kRows, int kCols>
inline constexpr bool swizzled_in_shared<SharedPart<S, kRows, kCols>> = swizzled_in_shared<S>;

template <RegisterTile D, Operand A, Operand B> __device__ constexpr bool require_operands() {
  constexpr bool bytes = std::is_same_v<typename A::Elem, E4M3>;
  static_assert(bytes == std::is_same_v<typename B::Elem, E4M3>,
                "warpgroup: given a factor of 8 bits and one of 16, wanted two of a kind");
  if constexpr (bytes)
    return std::is_same_v<typename B::Elem, E4M3>;
  else
    return require_elements<D, A, B>();
}

template <Inner kA, Inner kB, RegisterTile D, Operand A, Operand B>
__device__ constexpr bool require_wgmma() {
  constexpr bool place = InSharedMemory<B>;
  static_assert(place, "warpgroup: b is given in registers, wanted in shared memory, where wgmma reads it: "
                       "store(b_smem, b) first, then fence_async_proxy() and sync()");
  constexpr bool swizzled = swizzled_in_shared<A> && swizzled_in_shared<B>;
  static_assert(swizzled, "warpgroup: given a plain shared tile, wanted Placement::swizzled");
  constexpr bool rows = D::rows == 16;
  static_assert(rows, "warpgroup: wanted a destination of 16 rows, a warp's share of the 64");
  constexpr bool layout =
      InSharedMemory<A> || ((InLayout<A, Layout::row> || is_fragments8<A>) && kA == Inner::cols);
  static_assert(layout,
                "warpgroup: in registers a is wanted in row layout and as it is, not transposed: insert "
                "swap_layout(a_row, a), or store it to shared memory");
  constexpr bool a_rows = outer_length<kA, A> == (InSharedMemory<A> ? 64 : 16);
  static_assert(a_rows,
                "warpgroup: wanted a of 64 rows in shared memory, or of 16 in registers, a warp's share");
  constexpr bool sizes = outer_length<kB, B> == D::cols && inner_length<kA, A> == inner_length<kB, B>;
  static_assert(sizes, "warpgroup: wanted dst m x n, a m x k, b k x n");
  constexpr bool along = !std::is_same_v<typename B::Elem, E4M3> || (kA == Inner::cols && kB == Inner::cols);
  static_assert(along, "warpgroup: 8-bit factors are multiplied along their columns: wanted mma_ABt");
  constexpr bool width = ptx::has_wgmma_of<typename B::Elem, D::cols>;
  static_assert(width,
                "warpgroup: wanted a destination of 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192 or 256 "
                "columns, 32, 64, 128 or 256 of 8-bit factors");
  return require_operands<D, A, B>() && along && place && swizzled && rows && layout && a_rows && sizes &&
         width;
}

/// Begins dst (+)= a b.
template <Inner kA, Inner kB, RegisterTile D, Operand A, Operand B>
__device__ inline void wgmma(D &dst, const A &a, const B &b, bool add) {
  if constexpr (require_wgmma<kA, kB, D, A, B>()) {
    using Instruction = ptx::Wgmma<typename B::Elem, D::cols>;
    auto &acc = reinterpret_cast<float (&)[D::cols / 2]>(dst.pairs);
    fence_operand(dst);
    ptx::wgmma_fence();
    constexpr int step = 32 / sizeof(typename B::Elem);
#pragma unroll
    for (int k = 0; k < inner_length<kB, B>; k += step) {
      const uint64_t b_k = descriptor<kB>(b, k);
      if constexpr (RegisterTile<A>)
        Instruction::template rs<kB == Inner::rows>(acc, a.pairs[0][k / step], b_k, add || k > 0);
      else if constexpr (is_fragments8<A>)
        Instruction::template rs<false>(acc, a.words[k / step], b_k, add || k > 0);
      else
        Instruction::template ss<kA == Inner::rows, kB == Inner::rows>(acc, descriptor<kA>(a, k), b_k,
                                                                       add || k > 0);
    }
    ptx::wgmma_commit();
  }
}

template <Inner kA, Inner kB, RegisterTile D, Operand A, Operand B>
__device__ inline void wgmma(D &dst, const A &a, const B &b) {
  wgmma<kA, kB>(dst, a, b, false);
}
template <Inner kA, Inner kB, RegisterTile D, Operand A, Operand B>
__device__ inline void wgmma(D &dst, const A &a, const B &b, const D &c) {
  if (&dst != &c)
    dst = c;
  wgmma<kA, kB>(dst, a, b, true);
}

} // namespace detail

/// The four warps of a wgmma: neighbours in a block, from a multiple of four on.
struct warpgroup : group<4> {
  /// Which of the block's.
  __device__ static int index() { return uniform(threadIdx.x / threads); }

  // As the functions of the same names in mma.h, with 64 rows, and begun.
  template <RegisterTile D, Operand A, Operand B, std::same_as<D>... C>
  __device__ static void mma_AB(D &dst, const A &a, const B &b, const C &...c) {
    detail::wgmma<detail::Inner::cols, detail::Inner::rows>(dst, a, b, c...);
  }
  template <RegisterTile D, Operand A, Operand B, std::same_as<D>... C>
  __device__ static void mma_ABt(D &dst, const A &a, const B &b, const C &...c) {
    detail::wgmma<detail::Inner::cols, detail::Inner::cols>(dst, a, b, c...);
  }
  template <RegisterTile D, Operand A, Operand B, std::same_as<D>... C>
  __device__ static void mma_AtB(D &dst, const A &a, const B &b, const C &...c) {
    detail::wgmma<detail::Inner::rows, detail::Inner::rows>(dst, a, b, c...);
  }
  template <RegisterTile D, Operand A, Operand B, std::same_as<D>... C>
  __device__ static void mma_AtBt(D &dst, const A &a, const B &b, const C &...c) {
    detail::wgmma<detail::Inner::rows, detail::Inner::cols>(dst, a, b, c...);
  }

  /// Waits until all products but the last kPending are done; `dst` are the destinations that are used next.
  template <int kPending = 0, RegisterTile... D> __device__ static void mma_wait(D &...dst) {
    ptx::wgmma_wait<kPending>();
    (detail::fence_operand(dst), ...);
  }
};

} // namespace tiles
