// Loops over the lanes of a warp.
#pragma once

#include "machine/warp.h"

#include <array>
#include <bit>
#include <cstdint>

// A destination either coincides with a source lane for lane, or overlaps no source. Unrolling would not make
// these loops faster, and there are hundreds of them.
#if defined(__clang__)
#define LADDER_LANES_ARE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety) unroll(disable)")
#else
#define LADDER_LANES_ARE_INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#endif

namespace ladder::instructions {

inline constexpr auto kLaneBit = [] {
  std::array<std::uint32_t, 32> bits{};
  for (unsigned lane = 0; lane < 32; ++lane)
    bits[lane] = 1u << lane;
  return bits;
}();

/// Calls f(lane) for every lane of a mask, in order. A full mask needs no tests.
template <typename F> inline void for_lanes(std::uint32_t lanes, F f) {
  if (lanes == machine::kAllLanes) {
    for (int lane = 0; lane < 32; ++lane)
      f(lane);
  } else {
    for (; lanes; lanes &= lanes - 1)
      f(std::countr_zero(lanes));
  }
}

} // namespace ladder::instructions
