// Shared by floating-point instructions of all precisions: flushing, saturation, NaNs, minima, comparisons
// and the approximations of the special function unit.
#pragma once

#include "instructions/half_type.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ladder::instructions {

/// The canonical NaN that the GPU's single-precision instructions return.
inline constexpr float kFloatNaN = std::bit_cast<float>(0x7fffffffu);

template <class Float> inline Float canonical(Float value) {
  if constexpr (std::is_same_v<Float, float>)
    return value != value ? kFloatNaN : value;
  else
    return value; // a double keeps its payload
}

/// .ftz: flushes a subnormal to a zero of the same sign.
template <bool Ftz, class Float> inline Float flush(Float value) {
  if constexpr (Ftz && std::is_same_v<Float, float>) {
    const std::uint32_t bits = float_bits(value);
    return float_from((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
  } else {
    return value;
  }
}

/// .sat: clamped to [0, 1], NaN to +0.
template <class Float> inline Float saturate(Float value) {
  const Float above_zero = value > 0 ? value : Float(0);
  return above_zero < 1 ? above_zero : Float(1);
}

template <class Float> inline auto bits_of(Float value) {
  using Word = std::conditional_t<sizeof(Float) == 8, std::uint64_t, std::uint32_t>;
  return std::bit_cast<Word>(value);
}

template <class Float> inline Float absolute(Float value) {
  return std::bit_cast<Float>(bits_of(value) & ~(decltype(bits_of(value))(1) << (8 * sizeof(Float) - 1)));
}

/// `magnitude` with the sign of `sign`.
template <class Float> inline Float copy_sign(Float magnitude, Float sign) {
  constexpr auto kSign = decltype(bits_of(sign))(1) << (8 * sizeof(Float) - 1);
  return std::bit_cast<Float>((bits_of(magnitude) & ~kSign) | (bits_of(sign) & kSign));
}

// Minimum and maximum: -0 < +0. If one operand is a NaN, the result is the other, or NaN with `PropagateNaN`
// (.NaN).
template <bool PropagateNaN> struct Minimum {
  template <class Float> Float operator()(Float a, Float b) const {
    Float result = a < b ? a : b;
    result = a == b ? std::bit_cast<Float>(bits_of(a) | bits_of(b)) : result;
    if constexpr (PropagateNaN)
      return canonical(a != a ? a : result);
    else
      return canonical(b != b ? a : result);
  }
};
template <bool PropagateNaN> struct Maximum {
  template <class Float> Float operator()(Float a, Float b) const {
    Float result = a > b ? a : b;
    result = a == b ? std::bit_cast<Float>(bits_of(a) & bits_of(b)) : result;
    if constexpr (PropagateNaN)
      return canonical(a != a ? a : result);
    else
      return canonical(b != b ? a : result);
  }
};
/// .xorsign.abs: the extremum of the magnitudes, with the XOR of the signs.
template <class Extremum> struct XorSign {
  template <class Float> Float operator()(Float a, Float b) const {
    const Float result = Extremum{}(absolute(a), absolute(b));
    const Float sign = std::bit_cast<Float>(bits_of(a) ^ bits_of(b));
    return result != result ? result : copy_sign(result, sign);
  }
};

/// Rounds to an integral value: vectorisable, and without SSE4.1's instruction.
template <class Float> inline Float round_to_even(Float value) {
  constexpr Float kInteger =
      sizeof(Float) == 8 ? Float(0x1p52) : Float(0x1p23); // all values from here up are integers
  const Float magnitude = absolute(value);
  const Float rounded = (magnitude + kInteger) - kInteger;
  return magnitude < kInteger ? copy_sign(rounded, value) : value;
}

/// 2^x with relative error below 2^-23.2 (the hardware guarantees 2^-22); exact for integers.
inline float power_of_two(float x) {
  float power = x > 129.0f ? 129.0f : x;
  power = power < -151.0f ? -151.0f : power;
  constexpr float kInteger = 0x1.8p23f;
  const float shifted = power + kInteger; // nearest integer, in the low bits
  const float f = power - (shifted - kInteger);
  // 2^f = 1 + f q(f) for |f| <= 1/2, with q fitted for minimal relative error (2^-28.9).
  float q = 0x1.41fbbcp-13f;
  q = q * f + 0x1.5f3e54p-10f;
  q = q * f + 0x1.3b2d4cp-7f;
  q = q * f + 0x1.c6aee8p-5f;
  q = q * f + 0x1.ebfbdcp-3f;
  q = q * f + 0x1.62e430p-1f;
  const float fraction = 1.0f + q * f;
  // Scale in two steps, so that results outside the normal range round only once.
  const auto n = static_cast<std::int32_t>(float_bits(shifted) - float_bits(kInteger));
  const std::int32_t half = n >> 1;
  const float first = float_from(static_cast<std::uint32_t>(half + 127) << 23);
  const float second = float_from(static_cast<std::uint32_t>(n - half + 127) << 23);
  const float result = fraction * first * second;
  return x != x ? kFloatNaN : result;
}

} // namespace ladder::instructions
