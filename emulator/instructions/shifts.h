// PTX shifts: amounts are clamped to the width.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace ladder::instructions {

template <class T> using Unsigned = std::make_unsigned_t<T>;

/// value << amount or value >> amount; beyond the width 0, or all sign bits.
template <class T> T shift_left(T value, std::uint32_t amount) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  return amount < kBits ? static_cast<T>(Unsigned<T>(value) << (amount % kBits)) : T(0);
}
template <class T> T shift_right(T value, std::uint32_t amount) {
  constexpr std::uint32_t kBits = 8 * sizeof(T);
  const std::uint32_t clamped = std::min(amount, kBits - 1);
  return !std::is_signed_v<T> && amount >= kBits ? T(0) : static_cast<T>(value >> clamped);
}

} // namespace ladder::instructions
