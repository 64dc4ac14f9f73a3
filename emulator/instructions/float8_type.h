// 8-bit floats and their conversions.
#pragma once

#include "instructions/float_type.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ladder::instructions {

/// e4m3 (no infinity, NaN 0x7f) and e5m2 (like a short f16).
template <int ExponentBits, int MantissaBits> struct Float8 {
  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr bool kHasInfinity = ExponentBits == 5;
  static constexpr std::uint32_t kNaN = 0x7f, kMax = kHasInfinity ? 0x7b : 0x7e;

  static float to_float(std::uint32_t bits) {
    const std::uint32_t exponent = bits >> MantissaBits & ((1u << ExponentBits) - 1);
    const std::uint32_t mantissa = bits & ((1u << MantissaBits) - 1);
    float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), 1 - kBias - MantissaBits)
                                : std::ldexp(static_cast<float>(mantissa | 1u << MantissaBits),
                                             static_cast<int>(exponent) - kBias - MantissaBits);
    if (kHasInfinity && exponent == 31)
      value = mantissa ? kFloatNaN : std::numeric_limits<float>::infinity();
    else if (!kHasInfinity && (bits & 0x7f) == kNaN)
      value = kFloatNaN;
    return bits & 0x80 ? -value : value;
  }

  /// Rounds to nearest even; values out of range and infinities become the largest finite value.
  static std::uint32_t from_float(float value, bool relu) {
    if (value != value)
      return kNaN;
    const std::uint32_t sign = float_bits(value) >> 24 & 0x80u;
    if (relu && sign)
      return 0;
    const float magnitude = absolute(value);
    if (magnitude == 0)
      return sign;
    if (magnitude >= to_float(kMax))
      return sign | kMax;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    exponent = std::max(exponent - 1, 1 - kBias);
    const auto steps =
        static_cast<std::uint32_t>(round_to_even(std::ldexp(magnitude, MantissaBits - exponent)));
    // A carry out of the mantissa correctly increments the exponent.
    const auto biased = static_cast<std::uint32_t>(exponent + kBias);
    const std::uint32_t bits = ((biased - 1) << MantissaBits) + steps;
    return sign | std::min(bits, kMax);
  }
};
using E4M3 = Float8<4, 3>;
using E5M2 = Float8<5, 2>;

} // namespace ladder::instructions
