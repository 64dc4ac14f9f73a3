// What floating-point instructions of all precisions share: flushing, saturation, NaNs, minima, comparisons
// and the approximations of the special function unit.
#pragma once

#include "instructions/half_type.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ladder::instructions {

/// The NaN that a GPU's single-precision instructions give, whatever NaN they got.
inline constexpr float kFloatNaN = std::bit_cast<float>(0x7fffffffu);

template <class Float> inline Float canonical(Float value) {
  if constexpr (std::is_same_v<Float, float>)
    return value != value ? kFloatNaN : value;
  else
    return value; // a double keeps its payload
}

/// .ftz: a subnormal becomes a zero of the same sign.
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

// Minimum and maximum: -0 is less than +0; of a number and a NaN the number, or NaN where `PropagateNaN`
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
/// .xorsign.abs: of the magnitudes, with the exclusive or of the signs.
template <class Extremum> struct XorSign {
  template <class Float> Float operator()(Float a, Float b) const {
    const Float result = Extremum{}(absolute(a), absolute(b));
    const Float sign = std::bit_cast<Float>(bits_of(a) ^ bits_of(b));
    return result != result ? result : copy_sign(result, sign);
  }
};

// Rounding to integral values, without SSE4.1's instruction and so that loops vectorise.
template <class Float> inline Float round_to_even(Float value) {
  constexpr Float kInteger =
      sizeof(Float) == 8 ? Float(0x1p52) : Float(0x1p23); // from here on all are integers
  const Float magnitude = absolute(value);
  const Float rounded = (magnitude + kInteger) - kInteger;
  return magnitude < kInteger ? copy_sign(rounded, value) : value;
}
template <class Float> inline Float round_down(Float value) {
  const Float rounded = round_to_even(value);
  return rounded > value ? copy_sign(rounded - 1, value) : rounded;
}
template <class Float> inline Float round_up(Float value) {
  const Float rounded = round_to_even(value);
  return rounded < value ? copy_sign(rounded + 1, value) : rounded;
}
template <class Float> inline Float round_to_zero(Float value) {
  const Float magnitude = absolute(value);
  return copy_sign(round_down(magnitude), value);
}

/// 2^x, correctly rounded but for about one value in a thousand (the hardware's is within 2^-22 of it).
inline float power_of_two(float x) {
  double power = x;
  power = power > 130.0 ? 130.0 : power;
  power = power < -160.0 ? -160.0 : power;
  const double shifted = power + 0x1.8p52; // the integer nearest to it, in the low bits
  const double f = power - (shifted - 0x1.8p52);
  // Taylor series of exp(f ln 2), |f| <= 1/2; what is left out is below 2^-32 of the result.
  double sum = 0x1.62c0223a5c824p-20;
  sum = sum * f + 0x1.ffcbfc588b0c7p-17;
  sum = sum * f + 0x1.430912f86c787p-13;
  sum = sum * f + 0x1.5d87fe78a6731p-10;
  sum = sum * f + 0x1.3b2ab6fba4e77p-7;
  sum = sum * f + 0x1.c6b08d704a0c0p-5;
  sum = sum * f + 0x1.ebfbdff82c58fp-3;
  sum = sum * f + 0x1.62e42fefa39efp-1;
  sum = sum * f + 1.0;
  const double scale = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023u) << 52);
  const float result = static_cast<float>(sum * scale);
  return x != x ? kFloatNaN : result;
}

} // namespace ladder::instructions
