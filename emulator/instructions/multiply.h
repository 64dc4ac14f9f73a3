// Small dense products and unpacking of matrix fragments, for mma and wmma. Works on eight columns at a time,
// the width of the compiler's vector registers.
#pragma once

#include "instructions/half_type.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define LADDER_HAS_FMA_F16C
#endif

namespace ladder::instructions {

/// A vector of eight values (GCC and Clang lower it to what the CPU has).
template <typename T> struct Eight {
  typedef T Vector [[gnu::vector_size(8 * sizeof(T))]];
};

/// Forces the compiler to store the values. The code that follows reads them one by one, many times;
/// extracting them from vector registers would cost shuffles.
inline void keep_in_memory(const void *values) { asm volatile("" : : "r"(values) : "memory"); }

/// Rows of a product computed at once: as many as keep their sums in registers.
#ifdef LADDER_HAS_FMA_F16C
inline constexpr int kRowsAtOnce = 8;
#else
inline constexpr int kRowsAtOnce = 4;
#endif

/// out[i][0..7] = sum over k of a[i][k] * b[k][0..7] for kRowsAtOnce rows, added in order of k. A consists of
/// `Tiles` tiles of `Width` columns; rows are `a_stride` and tiles `a_tile` values apart. Products of two
/// 16-bit or tf32 values are exact in f32, so fusing changes nothing; f64 is always fused.
template <int Width, int Tiles, typename T>
[[gnu::always_inline]] inline void multiply_rows(const T *a, std::size_t a_stride, std::size_t a_tile,
                                                 const T *b, std::size_t b_stride, T *out,
                                                 std::size_t out_stride) {
  using Vector = typename Eight<T>::Vector;
  Vector sums[kRowsAtOnce] = {};
  // With more unrolling the compiler would keep rows of B in registers and spill the sums.
#pragma GCC unroll 1
  for (int tile = 0; tile < Tiles; ++tile) {
#pragma GCC unroll 8
    for (int k = 0; k < Width; ++k) {
      Vector row;
      std::memcpy(&row, b + std::size_t(k) * b_stride, sizeof row);
#pragma GCC unroll 8
      for (int i = 0; i < kRowsAtOnce; ++i) {
        const T factor = a[std::size_t(i) * a_stride + std::size_t(k)];
        if constexpr (std::is_same_v<T, double>) {
          for (int n = 0; n < 8; ++n)
            sums[i][n] = std::fma(factor, row[n], sums[i][n]);
        } else {
#ifdef LADDER_HAS_FMA_F16C
          if constexpr (std::is_same_v<T, float>)
            sums[i] = (Vector)_mm256_fmadd_ps(_mm256_set1_ps(factor), (__m256)row, (__m256)sums[i]);
          else
#endif
            sums[i] += factor * row;
        }
      }
    }
    a += a_tile;
    b += std::size_t(Width) * b_stride;
  }
  for (int i = 0; i < kRowsAtOnce; ++i)
    std::memcpy(out + std::size_t(i) * out_stride, &sums[i], sizeof(Vector));
}

/// c + product, wrapping or clamped.
inline std::int32_t add_products(std::int32_t c, std::int32_t products, bool saturate) {
  if (saturate)
    return std::int32_t(std::clamp<std::int64_t>(std::int64_t(c) + products, INT32_MIN, INT32_MAX));
  return std::int32_t(std::uint32_t(c) + std::uint32_t(products));
}
template <typename T> inline T add_products(T c, T products, bool) { return c + products; }

// --- elements of fragments
//
// A fragment register is 32 lanes of 32 bits (64 for f64), each holding kPerRegister elements: 32 *
// kPerRegister consecutive elements in memory. `unpack` turns a register into that many values to compute
// with.

// Views of registers that may alias whatever wrote them.
typedef std::uint16_t Halves [[gnu::may_alias]];
typedef std::uint32_t Words [[gnu::may_alias]];

struct F16Elements {
  using Value = float;
  static constexpr int kPerRegister = 2;
  static void unpack(const std::uint32_t *lanes, float *values) {
    const auto *const halves = reinterpret_cast<const Halves *>(lanes);
#ifdef LADDER_HAS_FMA_F16C
    for (int i = 0; i < 64; i += 8)
      _mm256_storeu_ps(values + i,
                       _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(halves + i))));
#elif defined(__aarch64__)
    typedef __fp16 NativeHalf [[gnu::may_alias]];
    for (int i = 0; i < 64; ++i)
      values[i] = reinterpret_cast<const NativeHalf *>(halves)[i];
#else
    for (int i = 0; i < 64; ++i)
      values[i] = Half::to_float(halves[i]);
#endif
  }
  static void pack(const float *values, std::uint32_t *lanes) {
    auto *const halves = reinterpret_cast<Halves *>(lanes);
    for (int i = 0; i < 64; ++i)
      halves[i] = std::uint16_t(Half::from_float(values[i]));
  }
};

struct BF16Elements {
  using Value = float;
  static constexpr int kPerRegister = 2;
  static void unpack(const std::uint32_t *lanes, float *values) {
    const auto *const halves = reinterpret_cast<const Halves *>(lanes);
    for (int i = 0; i < 64; ++i)
      values[i] = BFloat::to_float(halves[i]);
  }
};

/// Tensor cores ignore the low 13 bits of a tf32 operand.
struct TF32Elements {
  using Value = float;
  static constexpr int kPerRegister = 1;
  static void unpack(const std::uint32_t *lanes, float *values) {
    const auto *const words = reinterpret_cast<const Words *>(lanes);
    for (int i = 0; i < 32; ++i)
      values[i] = float_from(words[i] & 0xffffe000u);
  }
};

struct F32Elements {
  using Value = float;
  static constexpr int kPerRegister = 1;
  static void unpack(const std::uint32_t *lanes, float *values) {
    std::memcpy(values, lanes, 32 * sizeof(float));
  }
  static void pack(const float *values, std::uint32_t *lanes) {
    std::memcpy(lanes, values, 32 * sizeof(float));
  }
};

template <typename Byte> struct ByteElements {
  using Value = std::int32_t;
  static constexpr int kPerRegister = 4;
  static void unpack(const std::uint32_t *lanes, std::int32_t *values) {
    const auto *const bytes = reinterpret_cast<const Byte *>(lanes);
    for (int i = 0; i < 128; ++i)
      values[i] = bytes[i];
  }
};
using S8Elements = ByteElements<std::int8_t>;
using U8Elements = ByteElements<std::uint8_t>;

struct S32Elements {
  using Value = std::int32_t;
  static constexpr int kPerRegister = 1;
  static void unpack(const std::uint32_t *lanes, std::int32_t *values) { std::memcpy(values, lanes, 128); }
  static void pack(const std::int32_t *values, std::uint32_t *lanes) { std::memcpy(lanes, values, 128); }
};

struct F64Elements {
  using Value = double;
  static constexpr int kPerRegister = 1;
  static void unpack(const std::uint32_t *lanes, double *values) { std::memcpy(values, lanes, 256); }
  static void pack(const double *values, std::uint32_t *lanes) { std::memcpy(lanes, values, 256); }
};

} // namespace ladder::instructions
