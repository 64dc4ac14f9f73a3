// f16 and bf16 as bits, and their conversions: no branches, so that loops over lanes vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace ladder::instructions {

inline std::uint32_t float_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float float_from(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Rounds a number to odd: if it is not exact, returns the neighbour whose last bit is set. `rounded` is the
/// number rounded to nearest, `error` the number minus `rounded` (NaN if not finite). Rounding the result
/// again, to a format at least two bits narrower, equals rounding the number once (Boldo and Melquiond,
/// 2008).
template <class Float> inline Float to_odd(Float rounded, Float error) {
  using Word = std::conditional_t<sizeof(Float) == 8, std::uint64_t, std::uint32_t>;
  const Word bits = std::bit_cast<Word>(rounded);
  const Word signs_differ = (bits ^ std::bit_cast<Word>(error)) >> (8 * sizeof(Float) - 1);
  const Word step = std::fabs(error) > 0 ? 1 - 2 * signs_differ : Word(0);
  return std::bit_cast<Float>(bits + (step & ((bits & 1) - 1)));
}

/// a + b, rounded to odd.
template <class Float> inline Float add_to_odd(Float a, Float b) {
  const Float sum = a + b;
  const Float b_part = sum - a;
  return to_odd(sum, (a - (sum - b_part)) + (b - b_part)); // the error is exact (Knuth)
}

/// Rounds a double to a float, to odd.
inline float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  // Only the sign of the error and whether it is zero matter. Scaling keeps a nonzero error nonzero as a
  // float.
  return to_odd(nearest, static_cast<float>((value - static_cast<double>(nearest)) * 0x1p1000));
}

/// a * b + c with one rounding, also on CPUs without the instruction.
inline float fused_multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return static_cast<float>(
      add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
#endif
}

/// IEEE binary16. The number is in the low 16 bits of `h`; results have the upper bits clear.
struct Half {
  static constexpr std::uint32_t kNaN = 0x7fff, kInfinity = 0x7c00, kMax = 0x7bff, kOne = 0x3c00;

  static float to_float(std::uint32_t h) {
    const std::uint32_t magnitude = (h & 0x7fffu) << 13;
    const auto m = static_cast<std::int32_t>(magnitude);
    const std::uint32_t normal =
        magnitude + (m >= 0x0f800000 ? 0x70000000u : 0x38000000u); // rebias; infinity and NaN need more
    const std::uint32_t subnormal = float_bits(float_from(magnitude | 0x38800000u) - 0x1p-14f);
    return float_from((m < 0x00800000 ? subnormal : normal) | (h & 0x8000u) << 16);
  }

  static std::uint32_t from_float(float value) {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    // 0.5f has an ulp of the smallest subnormal, so the addition rounds correctly.
    const std::uint32_t subnormal = float_bits(float_from(magnitude) + 0.5f) - 0x3f000000u;
    const auto m = static_cast<std::int32_t>(magnitude);
    std::uint32_t h = m < 0x38800000 ? subnormal : normal;
    h = m >= 0x477ff000 ? kInfinity : h;
    h |= bits >> 16 & 0x8000u;
    return m > 0x7f800000 ? kNaN : h;
  }

  static float multiply(float a, float b) { return a * b; }
  /// Rounds only once, to odd, so from_float yields the correctly rounded result.
  static float multiply_add(float a, float b, float c) { return add_to_odd(a * b, c); }
};

/// The upper half of a float.
struct BFloat {
  static constexpr std::uint32_t kNaN = 0x7fff, kInfinity = 0x7f80, kMax = 0x7f7f, kOne = 0x3f80;

  static float to_float(std::uint32_t h) { return float_from(h << 16); }

  static std::uint32_t from_float(float value) {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t h = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return static_cast<std::int32_t>(bits & 0x7fffffffu) > 0x7f800000 ? kNaN : h;
  }

  // The product may overflow or underflow a float though the result does not.
  static float multiply(float a, float b) { return to_odd(static_cast<double>(a) * static_cast<double>(b)); }
  static float multiply_add(float a, float b, float c) {
    return to_odd(add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
  }
};

} // namespace ladder::instructions
