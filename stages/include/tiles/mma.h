// Matrix products on the tensor cores, with fp32 accumulators: dst = a b + c, or dst = a b, which is summed
// more accurately. a and b may each be transposed.
//
//            a (m x k)                       b (k x n)
//   mma_AB   row layout                      col layout
//   mma_ABt  row layout                      n x k in row layout
//   mma_AtB  k x m in col layout             col layout
//   mma_AtBt k x m in col layout             n x k in row layout
//
// In lines and spans (types.h) all four are the same: element j of dst's line i is the dot product of line i
// of a and line j of b. A tile in shared memory has no layout and serves as either. Its fragments are loaded
// when they are needed, so only 16 of its lines take registers at a time.
#pragma once

#include "tiles/concepts.h"
#include "tiles/memory_shared.h"

namespace tiles {

namespace detail {

/// The fragment at lines 16 i, positions 16 j of an operand in kLayout, quarters in order kOrder; loaded if
/// the operand is in shared memory.
template <Layout kLayout, Quarters kOrder, AnyTile X>
__device__ inline void fragment(uint32_t (&quarters)[4], const X &x, int i, int j) {
  if constexpr (InSharedMemory<X>) {
    load_16x16<kLayout, kOrder>(quarters, x, i, j);
  } else {
#pragma unroll
    for (int q = 0; q < 4; q++)
      quarters[q] = x.pairs[i][j][kOrder == Quarters::by_span ? q : q / 2 + q % 2 * 2];
  }
}

/// Multiplies into a 16x8 half of a 16x16 accumulator.
template <Element16 T>
__device__ inline void mma_16x8(float2 (&acc)[4], int half, const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  float2 &upper = acc[2 * half], &lower = acc[2 * half + 1];
  float sums[4] = {upper.x, upper.y, lower.x, lower.y};
  ladder::ptx::mma_m16n8k16<T>(sums, a, b[2 * half], b[2 * half + 1]);
  upper = {sums[0], sums[1]};
  lower = {sums[2], sums[3]};
}

__device__ inline void add_half(float2 (&acc)[4], int half, const float2 (&part)[4]) {
#pragma unroll
  for (int q = 2 * half; q < 2 * half + 2; q++)
    acc[q] = {acc[q].x + part[q].x, acc[q].y + part[q].y};
}

/// How many steps of 16 along k a product without c sums in one accumulator. A tensor core aligns a step's
/// products with the accumulator and truncates them, always towards 0: the larger the sum, the larger the
/// error. With logits in the hundreds, four steps in one accumulator cost lse its last bits at d = 64, two
/// steps at d = 128.
__host__ __device__ constexpr int longest_sum(int k) { return k > 4 ? 1 : 2; }

/// dst += a b, kGroup steps of 16 at a time. With kInParts, each group except the first has an accumulator of
/// its own, which is then added to dst.
template <Layout kA, Layout kB, int kGroup, bool kInParts, RegisterTile D, AnyTile A, AnyTile B>
__device__ inline void mma_groups(D &dst, const A &a, const B &b) {
  constexpr int m = D::rows / 16, n = D::cols / 16, k = (kA == Layout::row ? A::cols : A::rows) / 16;
#pragma unroll
  for (int group = 0; group < k; group += kGroup) {
    const int steps = k - group < kGroup ? k - group : kGroup;
    uint32_t a_quarters[kGroup][m][4];
#pragma unroll
    for (int step = 0; step < steps; step++)
#pragma unroll
      for (int i = 0; i < m; i++)
        fragment<kA, Quarters::by_span>(a_quarters[step][i], a, i, group + step);
#pragma unroll
    for (int j = 0; j < n; j++) {
      const bool own_sum = kInParts && group > 0;
      uint32_t b_quarters[kGroup][4];
#pragma unroll
      for (int step = 0; step < steps; step++)
        fragment<kB, Quarters::by_lines>(b_quarters[step], b, j, group + step);
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int i = 0; i < m; i++) {
          float2 part[4] = {};
          float2(&sum)[4] = own_sum ? part : dst.pairs[i][j];
#pragma unroll
          for (int step = 0; step < steps; step++)
            mma_16x8<typename A::Elem>(sum, half, a_quarters[step][i], b_quarters[step]);
          if (own_sum)
            add_half(dst.pairs[i][j], half, part);
        }
    }
  }
}

template <Layout kA, Layout kB, RegisterTile D, AnyTile A, AnyTile B>
__device__ inline void mma(D &dst, const A &a, const B &b, const D &c) {
  if (&dst != &c)
    dst = c;
  mma_groups<kA, kB, 1, false>(dst, a, b);
}

template <Layout kA, Layout kB, RegisterTile D, AnyTile A, AnyTile B>
__device__ inline void mma(D &dst, const A &a, const B &b) {
  constexpr int k = (kA == Layout::row ? A::cols : A::rows) / 16;
  dst = {};
  mma_groups<kA, kB, longest_sum(k), true>(dst, a, b);
}

template <RegisterTile D, AnyTile A, AnyTile B> __device__ constexpr bool require_elements() {
  constexpr bool sums = std::is_same_v<typename D::Elem, float> && D::row_layout;
  constexpr bool operands = Element16<typename A::Elem> && Element16<typename B::Elem>;
  static_assert(sums, "an mma's destination and c must be fp32 in row layout: insert copy(other, dst) or "
                      "swap_layout(other, dst) after it");
  static_assert(
      operands,
      "given an fp32 operand, expected fp16 or bf16 for the tensor cores: insert copy(tile_16, tile) first");
  static_assert(!operands || SameElement<A, B>,
                "given an fp16 and a bf16 operand, expected the same: insert copy(other, tile) first");
  return sums && operands && SameElement<A, B>;
}

template <typename X, Layout kLayout>
concept Usable = InSharedMemory<X> || InLayout<X, kLayout>;

} // namespace detail

template <RegisterTile D, AnyTile A, AnyTile B, std::same_as<D>... C>
__device__ inline void mma_AB(D &dst, const A &a, const B &b, const C &...c) {
  constexpr bool layouts = detail::Usable<A, Layout::row> && detail::Usable<B, Layout::col>;
  constexpr bool sizes = A::rows == D::rows && A::cols == B::rows && B::cols == D::cols;
  static_assert(detail::Usable<A, Layout::row>,
                "mma_AB: a is given in col layout, expected in row layout: insert swap_layout(a_row, a) "
                "first, or call mma_AtB with its transpose");
  static_assert(detail::Usable<B, Layout::col>,
                "mma_AB: b is given in row layout, expected in col layout: insert swap_layout(b_col, b) "
                "first, or call mma_ABt with its transpose");
  static_assert(sizes, "mma_AB: expected dst m x n, a m x k, b k x n");
  if constexpr (detail::require_elements<D, A, B>() && layouts && sizes)
    detail::mma<Layout::row, Layout::col>(dst, a, b, c...);
}

template <RegisterTile D, AnyTile A, AnyTile B, std::same_as<D>... C>
__device__ inline void mma_ABt(D &dst, const A &a, const B &b, const C &...c) {
  constexpr bool layouts = detail::Usable<A, Layout::row> && detail::Usable<B, Layout::row>;
  constexpr bool sizes = A::rows == D::rows && A::cols == B::cols && B::rows == D::cols;
  static_assert(detail::Usable<A, Layout::row>,
                "mma_ABt: a is given in col layout, expected in row layout: insert swap_layout(a_row, a) "
                "first, or call mma_AtBt with its transpose");
  static_assert(detail::Usable<B, Layout::row>,
                "mma_ABt: b is given in col layout, expected in row layout: insert swap_layout(b_row, b) "
                "first, or call mma_AB with its transpose");
  static_assert(sizes, "mma_ABt: expected dst m x n, a m x k, b n x k");
  if constexpr (detail::require_elements<D, A, B>() && layouts && sizes)
    detail::mma<Layout::row, Layout::row>(dst, a, b, c...);
}

template <RegisterTile D, AnyTile A, AnyTile B, std::same_as<D>... C>
__device__ inline void mma_AtB(D &dst, const A &a, const B &b, const C &...c) {
  constexpr bool layouts = detail::Usable<A, Layout::col> && detail::Usable<B, Layout::col>;
  constexpr bool sizes = A::cols == D::rows && A::rows == B::rows && B::cols == D::cols;
  static_assert(detail::Usable<A, Layout::col>,
                "mma_AtB: a is given in row layout, expected in col layout: insert swap_layout(a_col, a) "
                "first, or call mma_AB with its transpose");
  static_assert(detail::Usable<B, Layout::col>,
                "mma_AtB: b is given in row layout, expected in col layout: insert swap_layout(b_col, b) "
                "first, or call mma_AtBt with its transpose");
  static_assert(sizes, "mma_AtB: expected dst m x n, a k x m, b k x n");
  if constexpr (detail::require_elements<D, A, B>() && layouts && sizes)
    detail::mma<Layout::col, Layout::col>(dst, a, b, c...);
}

template <RegisterTile D, AnyTile A, AnyTile B, std::same_as<D>... C>
__device__ inline void mma_AtBt(D &dst, const A &a, const B &b, const C &...c) {
  constexpr bool layouts = detail::Usable<A, Layout::col> && detail::Usable<B, Layout::row>;
  constexpr bool sizes = A::cols == D::rows && A::rows == B::cols && B::rows == D::cols;
  static_assert(detail::Usable<A, Layout::col>,
                "mma_AtBt: a is given in row layout, expected in col layout: insert swap_layout(a_col, a) "
                "first, or call mma_ABt with its transpose");
  static_assert(detail::Usable<B, Layout::row>,
                "mma_AtBt: b is given in col layout, expected in row layout: insert swap_layout(b_row, b) "
                "first, or call mma_AtB with its transpose");
  static_assert(sizes, "mma_AtBt: expected dst m x n, a k x m, b n x k");
  if constexpr (detail::require_elements<D, A, B>() && layouts && sizes)
    detail::mma<Layout::col, Layout::row>(dst, a, b, c...);
}

} // namespace tiles
