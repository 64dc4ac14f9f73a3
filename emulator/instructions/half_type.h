// f16 and bf16 as bits, and their conversions. Without branches, so that loops over lanes vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace ladder::instructions {

inline std::uint32_t float_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float float_from(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// The sum rounded to odd: where it is not exact, the neighbour whose last bit is set. Rounding that once
/// more, to a format with at least two bits less, gives what one rounding of the exact sum would (Boldo and
/// Melquiond, 2008).
template <class Float> inline Float add_to_odd(Float a, Float b) {
  using Word = std::conditional_t<sizeof(Float) == 8, std::uint64_t, std::uint32_t>;
  const Float sum = a + b;
  const Float b_part = sum - a;
  const Float error = (a - (sum - b_part)) + (b - b_part); // exact (Knuth); NaN where the sum is not finite
  const Word bits = std::bit_cast<Word>(sum);
  const Word away = ((error > 0) == (sum > 0)) ? Word(1) : ~Word(0);
  const bool inexact = (error > 0) | (error < 0);
  return std::bit_cast<Float>(bits + ((inexact & ((bits & 1) == 0)) ? away : Word(0)));
}

/// A double as a float, rounded to odd.
inline float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const std::uint32_t bits = float_bits(nearest);
  const double magnitude = std::fabs(value), rounded = std::fabs(static_cast<double>(nearest));
  const std::uint32_t step = rounded < magnitude ? 1u : rounded > magnitude ? ~0u : 0u;
  return float_from(bits + ((bits & 1) == 0 ? step : 0u));
}

/// a * b + c rounded once, on CPUs with and without the instruction.
inline float fused_multiply_add(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return std::fma(a, b, c);
#else
  return static_cast<float>(
      add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
#endif
}

/// IEEE binary16. `h` is a value whose low 16 bits hold the number; results have the upper bits clear.
struct Half {
  static constexpr std::uint32_t kNaN = 0x7fff, kInfinity = 0x7c00, kMax = 0x7bff, kOne = 0x3c00;

  static float to_float(std::uint32_t h) {
    const std::uint32_t magnitude = (h & 0x7fffu) << 13;
    const std::uint32_t finite = float_bits(float_from(magnitude) * 0x1p112f);
    const std::uint32_t special = static_cast<std::int32_t>(magnitude) >= 0x0f800000 ? 0x7f800000u : 0u;
    return float_from(finite | special | (h & 0x8000u) << 16);
  }

  static std::uint32_t from_float(float value) {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    // An ulp of 0.5f is the smallest subnormal: the addition rounds.
    const std::uint32_t subnormal = float_bits(float_from(magnitude) + 0.5f) - 0x3f000000u;
    const auto m = static_cast<std::int32_t>(magnitude);
    std::uint32_t h = m < 0x38800000 ? subnormal : normal;
    h = m >= 0x477ff000 ? kInfinity : h;
    h |= bits >> 16 & 0x8000u;
    return m > 0x7f800000 ? kNaN : h;
  }

  static float multiply(float a, float b) { return a * b; }
  /// Exact but for the last rounding, which is to odd: from_float makes it one rounding of the whole.
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

  // A product may leave a float's range where the result does not.
  static float multiply(float a, float b) { return to_odd(static_cast<double>(a) * static_cast<double>(b)); }
  static float multiply_add(float a, float b, float c) {
    return to_odd(add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
  }
};

} // namespace ladder::instructions
