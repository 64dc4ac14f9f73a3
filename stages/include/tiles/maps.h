// Elementwise operations. The destination comes first and may be one of the sources. The arithmetic is fp32
// for all element types.
#pragma once

#include "tiles/concepts.h"

namespace tiles {

namespace detail {

/// dst[..] = f(src[..]...) for all elements of the calling lane; f takes and returns floats.
template <InRegisters D, typename F, InRegisters... S>
__device__ inline void map(D &dst, F f, const S &...src) {
  using T = typename D::Elem;
  if constexpr (!(require_same_places<D, S>() && ...)) {
    return;
  } else if constexpr (RegisterTile<D>) {
#pragma unroll
    for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
      for (int j = 0; j < D::span / 16; j++)
#pragma unroll
        for (int pair = 0; pair < 4; pair++)
          dst.pairs[i][j][pair] = pack<T>({f(unpack<typename S::Elem>(src.pairs[i][j][pair]).x...),
                                           f(unpack<typename S::Elem>(src.pairs[i][j][pair]).y...)});
  } else {
#pragma unroll
    for (int i = 0; i < D::length / 16; i++)
#pragma unroll
      for (int slot = 0; slot < D::per_lane; slot++)
        dst.values[i][slot] = from_float<T>(f(to_float(src.values[i][slot])...));
  }
}

/// 1 / vec in fp32.
template <RegisterVector V> __device__ inline auto inverse(const V &vec) {
  RegVec<float, V::length, V::along> result;
  map(result, [](float x) { return 1.f / x; }, vec);
  return result;
}

/// dst[..] = f(src[..], vec[of the same line]), or vec[of the same position of the span], by the vector's
/// direction.
template <RegisterTile D, RegisterTile S, RegisterVector V, typename F>
__device__ inline void map_vector(D &dst, const S &src, const V &vec, F f) {
  require_same_places<D, S>();
  using T = typename D::Elem;
#pragma unroll
  for (int i = 0; i < D::lines / 16; i++)
#pragma unroll
    for (int j = 0; j < D::span / 16; j++)
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const float2 values = unpack<typename S::Elem>(src.pairs[i][j][pair]);
        if constexpr (V::along == Along::lines) {
          const float operand = to_float(vec.values[i][pair % 2]);
          dst.pairs[i][j][pair] = pack<T>({f(values.x, operand), f(values.y, operand)});
        } else {
          const float first = to_float(vec.values[j][pair / 2 * 2]),
                      second = to_float(vec.values[j][pair / 2 * 2 + 1]);
          dst.pairs[i][j][pair] = pack<T>({f(values.x, first), f(values.y, second)});
        }
      }
}

/// The *_row operations take one value per row, the *_col operations one value per column.
template <RegisterTile D, RegisterVector V> __device__ constexpr void require_col_vec() {
  static_assert(V::length == D::rows,
                "a _row operation takes a vector with one value per row of the tile (its ColVec)");
  static_assert(V::length != D::rows || V::along == D::ColVec::along,
                "given a vector distributed over the lanes like a row, expected the tile's ColVec: insert "
                "copy(col_vec, vector) first, or call the _col form if it holds one value per column");
}
template <RegisterTile D, RegisterVector V> __device__ constexpr void require_row_vec() {
  static_assert(V::length == D::cols,
                "a _col operation takes a vector with one value per column of the tile (its RowVec)");
  static_assert(V::length != D::cols || V::along == D::RowVec::along,
                "given a vector distributed over the lanes like a column, expected the tile's RowVec: insert "
                "copy(row_vec, vector) first, or call the _row form if it holds one value per row");
}

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Sub {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct Mul {
  __device__ float operator()(float a, float b) const { return a * b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <typename Op, InRegisters D, InRegisters A>
__device__ inline void by_number(D &dst, const A &a, float b) {
  map(dst, [b](float x) { return Op{}(x, b); }, a);
}

template <typename Op, RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void by_row(D &dst, const S &src, const V &vec) {
  require_col_vec<D, V>();
  map_vector(dst, src, vec, Op{});
}
template <typename Op, RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void by_col(D &dst, const S &src, const V &vec) {
  require_row_vec<D, V>();
  map_vector(dst, src, vec, Op{});
}

} // namespace detail

// No source: dst = a constant. One source: dst = f(src).
template <InRegisters D> __device__ inline void fill(D &dst, float value) {
  detail::map(dst, [value](float) { return value; }, dst);
}
template <InRegisters D> __device__ inline void zero(D &dst) { fill(dst, 0.f); }
template <InRegisters D> __device__ inline void neg_infty(D &dst) { fill(dst, -INFINITY); }
template <InRegisters D, InRegisters S> __device__ inline void exp(D &dst, const S &src) {
  detail::map(dst, [](float x) { return expf(x); }, src);
}
/// dst = 2^src on the special-function unit: relative error 2^-22, subnormal results become 0.
template <InRegisters D, InRegisters S> __device__ inline void exp2(D &dst, const S &src) {
  detail::map(dst, [](float x) { return ladder::ptx::exp2_approx(x); }, src);
}
template <InRegisters D, InRegisters S> __device__ inline void log(D &dst, const S &src) {
  detail::map(dst, [](float x) { return logf(x); }, src);
}
template <InRegisters D, InRegisters S> __device__ inline void rsqrt(D &dst, const S &src) {
  detail::map(dst, [](float x) { return rsqrtf(x); }, src);
}
/// dst = tanh(src) on the special-function unit: relative error up to 2^-11.
template <InRegisters D, InRegisters S> __device__ inline void tanh(D &dst, const S &src) {
  detail::map(dst, [](float x) { return ladder::ptx::tanh_approx(x); }, src);
}
/// dst = silu(scale * src), where silu(x) = x / (1 + e^-x) = y + y tanh(y) with y = x / 2: one special
/// function per value. Its relative error of up to 2^-11 is that of a rounding to 16 bits.
template <InRegisters D, InRegisters S> __device__ inline void silu(D &dst, const S &src, float scale = 1.f) {
  const float half = 0.5f * scale;
  detail::map(
      dst,
      [half](float x) {
        const float y = half * x;
        return fmaf(y, ladder::ptx::tanh_approx(y), y);
      },
      src);
}
/// value = silu(z), and x becomes the slope of silu at z = scale * x. With s = 1 / (1 + e^-z) they are z s
/// and s + z s (1 - s): one special function for both.
template <RegisterTile D, RegisterTile S> __device__ inline void silu_and_slope(D &value, S &x, float scale) {
  if constexpr (!detail::require_same_places<D, S>())
    return;
  const auto both = [half = 0.5f * scale](float x) {
    const float y = half * x, sigmoid = fmaf(0.5f, ladder::ptx::tanh_approx(y), 0.5f);
    const float value = 2.f * y * sigmoid;
    return float2{value, fmaf(-value, sigmoid, sigmoid + value)};
  };
#pragma unroll
  for (int i = 0; i < S::lines / 16; i++)
#pragma unroll
    for (int j = 0; j < S::span / 16; j++)
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        const float2 values = unpack<typename S::Elem>(x.pairs[i][j][pair]);
        const float2 first = both(values.x), second = both(values.y);
        value.pairs[i][j][pair] = pack<typename D::Elem>({first.x, second.x});
        x.pairs[i][j][pair] = pack<typename S::Elem>({first.y, second.y});
      }
}

// Two tiles or two vectors: dst = a op b.
template <InRegisters D, InRegisters A, InRegisters B>
__device__ inline void add(D &dst, const A &a, const B &b) {
  detail::map(dst, detail::Add{}, a, b);
}
template <InRegisters D, InRegisters A, InRegisters B>
__device__ inline void sub(D &dst, const A &a, const B &b) {
  detail::map(dst, detail::Sub{}, a, b);
}
template <InRegisters D, InRegisters A, InRegisters B>
__device__ inline void mul(D &dst, const A &a, const B &b) {
  detail::map(dst, detail::Mul{}, a, b);
}
template <InRegisters D, InRegisters A, InRegisters B>
__device__ inline void max(D &dst, const A &a, const B &b) {
  detail::map(dst, detail::Max{}, a, b);
}

// A tile or vector and a number: dst = a op b.
template <InRegisters D, InRegisters A> __device__ inline void add(D &dst, const A &a, float b) {
  detail::by_number<detail::Add>(dst, a, b);
}
template <InRegisters D, InRegisters A> __device__ inline void mul(D &dst, const A &a, float b) {
  detail::by_number<detail::Mul>(dst, a, b);
}

// A tile and a vector with one value per row: dst[r][c] = src[r][c] op vec[r]. (div_row multiplies by the
// inverse, which takes one division per row. The last bit may differ from that of a division.)
template <RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void sub_row(D &dst, const S &src, const V &vec) {
  detail::by_row<detail::Sub>(dst, src, vec);
}
template <RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void mul_row(D &dst, const S &src, const V &vec) {
  detail::by_row<detail::Mul>(dst, src, vec);
}
template <RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void div_row(D &dst, const S &src, const V &vec) {
  detail::by_row<detail::Mul>(dst, src, detail::inverse(vec));
}

// A tile and a vector with one value per column: dst[r][c] = src[r][c] op vec[c].
template <RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void add_col(D &dst, const S &src, const V &vec) {
  detail::by_col<detail::Add>(dst, src, vec);
}
template <RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void sub_col(D &dst, const S &src, const V &vec) {
  detail::by_col<detail::Sub>(dst, src, vec);
}
template <RegisterTile D, RegisterTile S, RegisterVector V>
__device__ inline void mul_col(D &dst, const S &src, const V &vec) {
  detail::by_col<detail::Mul>(dst, src, vec);
}

} // namespace tiles
